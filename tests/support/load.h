// How much later than promised a loaded machine may be.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

namespace hccl::testing {

/// Measures, while it lives, how much too late this machine wakes a thread.
class Load {
 public:
  /// Returns the promised time plus the machine's lateness so far, once for each thread that must
  /// wake in a row.
  std::chrono::nanoseconds allows(std::chrono::nanoseconds promised) const {
    constexpr int kWakeUps = 4;
    const std::chrono::nanoseconds overdue = Clock::now() - due_.load();  // of the current nap
    return promised + kWakeUps * std::max(worst_.load(), overdue);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void measure(const std::stop_token& over) {
    constexpr std::chrono::milliseconds kNap{2};
    while (!over.stop_requested()) {
      const Clock::time_point due = Clock::now() + kNap;
      due_ = due;
      std::this_thread::sleep_until(due);
      worst_ = std::max<std::chrono::nanoseconds>(worst_, Clock::now() - due);
    }
  }

  std::atomic<std::chrono::nanoseconds> worst_{std::chrono::nanoseconds(0)};
  std::atomic<Clock::time_point> due_{Clock::now()};
  std::jthread thread_{[this](const std::stop_token& over) { measure(over); }};
};

}  // namespace hccl::testing
