// The settings that a program may change while a communicator is in use.
#pragma once

#include <atomic>
#include <chrono>

#include "hccl/base/config.h"

namespace hccl::core {

/// Any thread may read and write the members.
struct RunSettings {
  explicit RunSettings(const Config& config)
      : deterministic(config.deterministic), timeout(config.exec_timeout) {}

  /// While true, operations that have not begun fail with kSuspending. Such an operation takes no
  /// number, so the caller may repeat it later.
  std::atomic<bool> suspended{false};
  /// For operations that begin from now on. All ranks set the same value between the same
  /// operations.
  std::atomic<Deterministic> deterministic;
  /// The time limit of operations that begin from now on; 0: no limit.
  std::atomic<std::chrono::milliseconds> timeout;
};

}  // namespace hccl::core
