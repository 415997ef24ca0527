// Logs a long wait: the operation, and the ranks for which the operation waits. The first line
// comes after two seconds, then one every half minute, so the log names late ranks long before a
// timeout.
#pragma once

#include <string>
#include <utility>

#include "hccl/base/deadline.h"
#include "hccl/base/log.h"
#include "hccl/base/waiter.h"

namespace hccl::core {

/// For one thread at a time.
class Suspicion {
 public:
  /// `name` is the communicator's name, `rank` this rank's number in the communicator.
  Suspicion(Logger log, std::string name, int rank)
      : log_(std::move(log)), name_(std::move(name)), rank_(rank) {}

  /// Called from the hook Waiter::stalled while the wait goes on. If `pending` names another call
  /// than before, a new wait has begun.
  void report(const WaitingCall& pending, Deadline::Clock::time_point now = Deadline::Clock::now());

 private:
  const Logger log_;
  const std::string name_;
  const int rank_;
  std::string call_;
  Deadline::Clock::time_point since_{}, next_{};
};

}  // namespace hccl::core
