// The times of iterations, which the fusion engine records while the iterations run: nanoseconds of
// one clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "split/strategy.h"
#include "split/trace.h"

namespace hccl::split {

/// The values that all iterations with one plan share.
struct PlanVersion {
  Segments last_indices;
  std::vector<std::uint64_t> bytes;  ///< of each segment
  std::uint32_t version = 0;
  std::int64_t predicted_end = 0;
  std::int64_t lower_bound = 0;
};

/// Times of one iteration; 0 means that the event did not happen.
struct Times {
  std::uint64_t number = 0;
  bool overlapped = false;
  std::int64_t begin = 0;
  std::int64_t fp_start = 0;
  std::int64_t bp_end = 0;
  std::int64_t wait_begin = 0;
  std::int64_t wait_end = 0;
  std::int64_t iteration_end = 0;
  std::vector<std::int64_t> ready;  ///< of each gradient
  std::vector<std::int64_t> start;  ///< of each segment; the members below are also of each segment
  std::vector<std::int64_t> end;
  std::vector<std::int64_t> cpu;
  std::vector<std::int64_t> wait_for_peer;
  std::vector<std::string> algorithm;
  std::shared_ptr<const PlanVersion> plan;
  std::int64_t compute_end() const { return bp_end != 0 ? bp_end : wait_begin; }
};

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The iteration under way, and the last ones: at most kMost, and as many as fit in 16 MiB.
class Recording {
 public:
  static constexpr std::size_t kMost = 1000;

  /// `heading` is a trace without iterations. The ready times in `gradients` are not used.
  Recording(Trace heading, std::vector<TraceGradient> gradients)
      : heading_(std::move(heading)), gradients_(std::move(gradients)) {}

  /// Begins the next iteration. After an exception the last iteration is still over.
  void begin(std::shared_ptr<const PlanVersion> plan, bool overlapped);
  void begin_wait() {
    if (now_.wait_begin == 0) now_.wait_begin = now_ns();
  }
  void end() { now_.wait_end = now_ns(); }
  /// Returns whether the program has waited for the iteration. If so, the next call begins another
  /// iteration.
  bool over() const { return now_.wait_end != 0; }
  const std::string& group() const { return heading_.group; }
  Times& now() { return now_; }
  std::deque<Times>& past() { return past_; }  ///< oldest first

  /// The time line of the last iteration that is over; empty before the first.
  std::string timeline() const;
  /// Returns the newest iterations that did not fail: as many as fit into a message of 16 MiB.
  Trace trace() const;

 private:
  TraceIteration iteration(const Times& times) const;
  std::size_t bytes_in_message(const Times& times) const;

  const Trace heading_;
  const std::vector<TraceGradient> gradients_;
  Times now_;
  std::deque<Times> past_;
};

}  // namespace hccl::split
