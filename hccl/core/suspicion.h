// What the log says of a wait that goes on: who is waited for, and in which operation. Once after
// two seconds, then every half minute: suspicion comes long before a time is up.
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
  /// `name`, `rank`: of the communicator, and this rank's number there.
  Suspicion(Logger log, std::string name, int rank)
      : log_(std::move(log)), name_(std::move(name)), rank_(rank) {}

  /// As Waiter::stalled: the wait goes on. Another call is another wait.
  void report(const Pending& pending, Deadline::Clock::time_point now = Deadline::Clock::now());

 private:
  const Logger log_;
  const std::string name_;
  const int rank_;
  std::string call_;
  Deadline::Clock::time_point since_{}, next_{};
};

}  // namespace hccl::core
