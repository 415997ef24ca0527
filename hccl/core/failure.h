// The failure state of one communicator on one rank: READY, then FAILED for good. Every rank keeps
// the first reason; the root sends it to all ranks.
#pragma once

#include <functional>

#include "hccl/base/call.h"
#include "hccl/base/mutex.h"
#include "hccl/base/waiter.h"
#include "hccl/core/flight_recorder.h"
#include "hccl/core/membership.h"

namespace hccl::core {

class Failure final : public join::FailureListener {
 public:
  /// The number of bytes at the end of a scope that may distinguish activities of one communicator.
  static constexpr std::size_t kScopeBytes = 8;

  /// `is` must outlive the object.
  explicit Failure(const Membership& is)
      : is_(is), messages_(messages_of(is.id)), operations_(operations_of(is.id)) {}
  ~Failure() override { stop_listening(); }

  /// From now on receives the failures of other ranks. Deaths that have already happened are
  /// reported at once.
  void listen() { is_.control->add(this); }
  /// After this call neither on_failure() nor the interrupt runs.
  void stop_listening() { is_.control->remove(this); }
  /// Sets the function that ends the running operation when another rank fails. Its arguments are
  /// the reason, and the rank of this communicator that the root has declared dead, or
  /// Status::kNobody. The function must not block. The thread of the control line calls the
  /// function; if the communicator has failed already, interrupt_with() itself calls the function
  /// at once.
  using Interrupt = std::function<void(const Status&, int dead)>;
  void interrupt_with(Interrupt interrupt);

  /// The first two functions run when another rank of the communicator summons its ranks to open
  /// connections, for operations or for messages, or at once if a summons has come before. The
  /// third runs when the communicator fails, or when a rank ends the communicator while that rank
  /// opens connections for messages. The rules for the interrupt hold for all three functions.
  void summons_with(std::function<void()> open, std::function<void()> start_messages,
                    std::function<void(const Status&)> end_messages);

  /// Ends the communicator on all its ranks. Any thread may call. Blocks at most until a message to
  /// the root is sent.
  void abort(const Status& why);

  const AbortFlag& flag() const { return flag_; }
  bool raised() const { return flag_.raised(); }
  Status reason() const { return flag_.reason(); }

  /// Ends the communicator with this reason, unless the communicator has failed already. Waits for
  /// the root's verdict if this rank alone cannot know the reason. Returns the first reason. Any
  /// thread may call.
  Status settle(Status why);
  /// As settle(), for the exception that is being handled. If even the report is impossible, only
  /// this rank fails. Returns the first reason.
  Status settle_thrown() noexcept;

  /// The record of the last operations, which a failure writes to a file.
  FlightRecorder& recorder() { return recorder_; }

  // Only the thread that runs the communicator's operations may call the functions below.

  /// settle(), then writes the record. Returns the first reason.
  Status fail(Status why);
  /// As fail(why), for an operation; the reason names the operation.
  Status fail(Status why, const Envelope& call);
  /// As fail(why, call), for a failure that needs no verdict.
  Status known(const Status& why, const Envelope& call);
  /// As fail(), for the exception that is being handled.
  Status thrown() noexcept;
  /// Refuses a call after the failure. Records the first such call, because the call shows what
  /// this rank's program did next.
  Status refuse(const Envelope& call);

  void on_failure(const Uuid& scope, const Status& why) override;
  void on_summons(const Uuid& scope) override;

 private:
  Status named(const Status& why) const;
  bool raise(const Status& why, int dead = Status::kNobody);
  void await_verdict();
  void write_record();

  const Membership& is_;
  const Uuid messages_;    // the scope of messages with tags
  const Uuid operations_;  // the scope of the summons to operations
  FlightRecorder recorder_;
  AbortFlag flag_;
  Doorbell verdict_;  // rung when on_failure() has raised the flag
  Mutex interrupt_mutex_{LockLevel::kInterrupt};
  Interrupt interrupt_ HCCL_GUARDED_BY(interrupt_mutex_);
  std::function<void()> open_ HCCL_GUARDED_BY(interrupt_mutex_);
  std::function<void()> start_ HCCL_GUARDED_BY(interrupt_mutex_);
  std::function<void(const Status&)> end_ HCCL_GUARDED_BY(interrupt_mutex_);
  bool summoned_to_operations_ HCCL_GUARDED_BY(interrupt_mutex_) = false;
  bool summoned_to_messages_ HCCL_GUARDED_BY(interrupt_mutex_) = false;
  bool recorded_ = false;
};

}  // namespace hccl::core
