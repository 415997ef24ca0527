// The failure state of one communicator on one rank: READY, then FAILED for good. The first reason
// wins, on this rank and by the coordinator on all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/waiter.h"
#include "hccl/core/flight_recorder.h"
#include "hccl/join/control_line.h"

namespace hccl::core {

class Failure final : public join::FailureListener {
 public:
  /// The last so many bytes of a scope may tell apart what happens in one communicator.
  static constexpr std::size_t kScopeBytes = 8;

  /// `ranks`: world ranks, by rank of this communicator. `line`, `ranks` and `recorder` outlive it.
  Failure(join::ControlLine& line, const Uuid& id, std::string name, const std::vector<int>& ranks,
          int rank, std::string directory, Logger log, FlightRecorder& recorder);
  ~Failure() override { stop_listening(); }

  /// Hears of the failures of other ranks from now on, and of the deaths so far.
  void listen() { line_.add(this); }
  /// After this neither on_failure() nor the interrupt runs.
  void stop_listening() { line_.remove(this); }
  /// What ends the operation that runs when another rank fails: gets the reason, and the rank of
  /// this communicator that the coordinator has declared dead, or Status::kNobody. Must not block;
  /// called by the thread of the control line, or at once if the communicator has failed already.
  using Interrupt = std::function<void(const Status&, int dead)>;
  void interrupt_with(Interrupt interrupt);

  /// What runs when another rank of the communicator summons its ranks; also if one has already.
  /// As the interrupt.
  void summoned_with(std::function<void()> start);

  /// Ends the communicator on all its ranks. Any thread; blocks for a message to the coordinator at
  /// most.
  void abort(const Status& why);

  const AbortFlag& flag() const { return flag_; }
  bool raised() const { return flag_.raised(); }
  Status reason() const { return flag_.reason(); }

  // The rest is for the thread that runs the communicator's operations.

  /// Ends the communicator, unless another reason was first, and writes the record. Gives the
  /// reason that won.
  Status fail(Status why);
  /// The same for an operation, which the reason names.
  Status fail(Status why, const Envelope& call);
  /// The same for the exception that is being handled. Where not even that can be told, this rank
  /// alone fails.
  Status thrown() noexcept;
  /// Refuses a call that came after the failure. The first one is recorded: it shows what this rank
  /// wanted next.
  Status refuse(const Envelope& call);

  void on_failure(const Uuid& scope, const Status& why) override;
  void on_summons(const Uuid& scope) override;

 private:
  bool raise(const Status& why, int dead = Status::kNobody);
  void await_verdict();
  void write_record();

  join::ControlLine& line_;
  const Uuid id_;
  const std::string name_;
  const std::vector<int>& ranks_;
  const int rank_;
  const std::string directory_;  // of the record; "off": none
  const Logger log_;
  FlightRecorder& recorder_;
  AbortFlag flag_;
  Doorbell verdict_;  // rung when on_failure() has raised the flag
  Mutex interrupt_mutex_{LockLevel::kInterrupt};
  Interrupt interrupt_ HCCL_GUARDED_BY(interrupt_mutex_);
  std::function<void()> start_ HCCL_GUARDED_BY(interrupt_mutex_);
  bool summoned_ HCCL_GUARDED_BY(interrupt_mutex_) = false;
  bool recorded_ = false;
};

}  // namespace hccl::core
