// What wakes a sleeper: threads of one process, or of several if the doorbell lies in shared
// memory. Any thread may ring; several may sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "hccl/base/atomics.h"

namespace hccl {

/// Ringing costs no system call while nobody sleeps. Either the ringer sees the sleeper, or the
/// sleeper sees what the ringer stored before it rang: both must fence. As constructed, for threads
/// of one process, each side fences for itself. In shared memory a doorbell begins as zeroes and is
/// not constructed: there the sleeper fences for all (membarrier), and ringing is one load.
template <class Atomics = StdAtomics>
class BasicDoorbell {
 public:
  /// In shared memory: call once in each process before it rings or sleeps. Where the kernel cannot
  /// fence for others, each ringer fences from then on.
  void join() {
    if (!Atomics::join_fences()) ringer_fences_.store(1, std::memory_order_seq_cst);
  }
  void ring() {
    if (ringer_fences_.load(std::memory_order_relaxed) != 0) {
      Atomics::thread_fence(std::memory_order_seq_cst);
    }
    Atomics::compiler_fence();
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  /// Wakes the sleepers, though nothing was stored for them: an abort.
  [[gnu::cold]] void wake() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    Atomics::wake_all(rings_);
  }

  /// Either this thread sees what a ringer stored before it rang, or the ringer sees, after that,
  /// what this thread has stored.
  void fence() const {
    if (ringer_fences_.load(std::memory_order_relaxed) == 0) Atomics::fence_everywhere();
    Atomics::thread_fence(std::memory_order_seq_cst);
  }

  // A sleeper's three steps (waiter.h).
  std::uint32_t prepare() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    fence();
    return rings_.load(std::memory_order_seq_cst);
  }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
    Atomics::sleep(rings_, ticket, at_most);
  }
  void awake() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  template <class T>
  using atomic = typename Atomics::template atomic<T>;
  atomic<std::uint32_t> ringer_fences_{1};
  atomic<std::uint32_t> rings_{0};
  atomic<std::uint32_t> sleepers_{0};
};

using Doorbell = BasicDoorbell<>;

}  // namespace hccl
