// The settings that a program may change while a communicator is in use.
#pragma once

#include <atomic>
#include <chrono>

#include "hccl/base/config.h"

namespace hccl::core {

/// Any thread may call any member.
class RunSettings {
 public:
  explicit RunSettings(const Config& config)
      : deterministic_(config.deterministic), timeout_(config.exec_timeout) {}

  /// Until resume(), operations that have not begun fail with kSuspending. Such an operation takes
  /// no number, so the caller may repeat it after resume().
  void suspend() { suspended_.store(true); }
  void resume() { suspended_.store(false); }
  bool suspended() const { return suspended_.load(std::memory_order_relaxed); }

  /// Sets the time limit of operations that begin from now on; 0: no limit. The initial value is
  /// config().exec_timeout.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout); }
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }

  /// Sets the value for operations that begin from now on. The initial value is
  /// config().deterministic. All ranks set the same value between the same operations.
  void set_deterministic(Deterministic value) { deterministic_.store(value); }
  Deterministic deterministic() const { return deterministic_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> suspended_{false};
  std::atomic<Deterministic> deterministic_;
  std::atomic<std::chrono::milliseconds> timeout_;
};

}  // namespace hccl::core
