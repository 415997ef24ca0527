// Logs a wait that goes on: the operation, and the ranks that it waits for. The first line comes
// after two seconds, then one every half minute, so the log names late ranks long before a timeout.
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
  /// `name`: of the communicator. `rank`: this rank's number in it.
  Suspicion(Logger log, std::string name, int rank)
      : log_(std::move(log)), name_(std::move(name)), rank_(rank) {}

  /// For Waiter::stalled: reports that the wait goes on. Another call starts another wait.
  void report(const WaitingCall& pending, Deadline::Clock::time_point now = Deadline::Clock::now());

 private:
  const Logger log_;
  const std::string name_;
  const int rank_;
  std::string call_;
  Deadline::Clock::time_point since_{}, next_{};
};

}  // namespace hccl::core
