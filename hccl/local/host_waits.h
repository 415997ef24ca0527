// The waits of one rank for the other ranks of its host.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "hccl/base/call.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/host_memory.h"
#include "hccl/base/waiter.h"

namespace hccl::local {

/// Only one thread at a time may use this object; any thread may call wake().
template <class Atomics = StdAtomics>
class BasicHostWaits {
 public:
  using Waiter = BasicWaiter<Atomics>;
  using Doorbell = BasicDoorbell<Atomics>;

  /// `memory` and `doorbell` must outlive the object. `background`: the policy of operations that
  /// run while their callers compute.
  BasicHostWaits(const HostMemory& memory, Doorbell& doorbell, Waiter waiter, WaitPolicy background)
      : memory_(memory), doorbell_(doorbell), waiter_(std::move(waiter)), background_(waiter_) {
    background_.policy = background;
  }

  const BasicAbortFlag<Atomics>* abort() const { return waiter_.abort; }
  const WaitPolicy& policy() const { return waiter_.policy; }
  /// Applies to operations that begin after this call; see Waiter::timeout.
  void set_timeout(std::chrono::nanoseconds timeout) {
    waiter_.timeout = background_.timeout = timeout;
  }
  /// Sets Waiter::progress for every wait until it is set again.
  void set_progress(const std::function<Status()>& progress) {
    waiter_.progress = background_.progress = progress;
  }

  /// Begins the waits of an operation. `call` must be valid until the operation ends.
  void begin(const Envelope& call, bool background) {
    call_ = &call;
    waiting_ = background ? &background_ : &waiter_;
    waited_ = false;
  }
  const Envelope& call() const { return *call_; }
  /// Whether a wait of this operation took longer than a few checks.
  bool waited() const { return waited_; }

  /// Waits until done(local_rank) is true. A long wait reports every peer for which done(peer) is
  /// false as late.
  template <class Done>
  Status until(int local_rank, Done&& done) {
    return until(local_rank, done, [&](int peer) { return !done(peer); });
  }
  /// Waits until done(local_rank) is true. A long wait reports every peer for which late(peer) is
  /// true as late.
  template <class Done, class Late>
  Status until(int local_rank, Done&& done, Late&& late) {
    if (soon<Atomics>([&] { return done(local_rank); }, waiting_->policy)) return {};
    return until_long([&] { return done(local_rank); }, late);
  }
  /// Waits until done(peer) is true for every peer.
  template <class Done>
  Status each(Done&& done) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == memory_.local_rank) continue;
      HCCL_RETURN_IF_ERROR(until(peer, done));
    }
    return {};
  }
  /// Waits 100 ms for the report of a failure. Returns the failure's reason, or success if no
  /// report arrives.
  Status failure() {
    const Waiter waiter{
        .timeout = std::chrono::milliseconds{100}, .abort = abort(), .policy = policy()};
    const Waited waited = waiter.until([] { return false; }, doorbell_);
    return waited == Waited::kAborted ? abort()->reason() : Status();
  }
  /// Makes a rank that sleeps check the abort flag. Any thread may call.
  void wake() { doorbell_.wake(); }

 private:
  int size() const { return static_cast<int>(memory_.ranks.size()); }
  [[gnu::noinline]] Status until_long(const std::function<bool()>& done,
                                      const std::function<bool(int)>& late) {
    waited_ = true;
    const auto describe = [&] {
      WaitingCall pending{call_->sequence, to_string(*call_), {}};
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != memory_.local_rank && late(peer))
          pending.late.push_back(memory_.ranks[static_cast<std::size_t>(peer)]);
      }
      return pending;
    };
    return waiting_->wait(done, describe, doorbell_);
  }

  const HostMemory& memory_;
  Doorbell& doorbell_;
  Waiter waiter_;
  Waiter background_;
  const Waiter* waiting_ = &waiter_;  // the waiter of this operation
  const Envelope* call_ = nullptr;
  bool waited_ = false;
};

using HostWaits = BasicHostWaits<>;

}  // namespace hccl::local
