// A point in time after which a wait gives up. A deadline belongs to one operation, never to a
// transport.
#pragma once

#include <algorithm>
#include <chrono>

namespace hccl {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::nanoseconds wait) {
    const auto now = Clock::now();
    // An absurdly long wait must not overflow into the past.
    if (wait > Clock::time_point::max() - now) return never();
    return Deadline(now + wait);
  }

  static Deadline at(Clock::time_point time) { return Deadline(time); }

  bool expired() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  std::chrono::nanoseconds left() const {
    if (at_ == Clock::time_point::max()) return std::chrono::nanoseconds::max();
    return std::max(std::chrono::nanoseconds::zero(),
                    std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - Clock::now()));
  }
  /// Returns the time left, for poll(2): milliseconds rounded up, at most `cap`.
  int poll_ms(int cap = 1000) const {
    const auto rest = left();
    if (rest >= std::chrono::milliseconds(cap)) return cap;
    return static_cast<int>((rest.count() + 999'999) / 1'000'000);
  }
  Deadline sooner(Deadline other) const { return Deadline(std::min(at_, other.at_)); }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace hccl
