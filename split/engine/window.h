// What a window of traced iterations measured. Each rank sends one message of the same length; the
// least of every value over all ranks counts, so one allreduce does it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "split/engine/iteration.h"

namespace hccl::split {

/// Some iterations with the same segments, merged over ranks. Seconds from the begin of an
/// iteration.
struct Window {
  static constexpr std::uint64_t kIterations = 10;  ///< at most
  /// Medians over the iterations of one kind, of the slowest rank; empty if there was none.
  struct Medians {
    std::vector<double> ready;
    double compute_end = 0;
    double end = 0;               ///< when the program had all gradients
    std::vector<double> start;    ///< of each segment
    std::vector<double> seconds;  ///< of each segment: from the last rank's start to the last end
    std::size_t iterations = 5;   ///< that the medians are of
    bool empty() const { return ready.empty(); }
  };
  std::uint64_t last_iteration = 0;
  Medians alone;       ///< segments ran behind backward
  Medians overlapped;  ///< segments ran beside it
};

/// The iterations of a window: all of them, and by kind (behind backward, beside it).
struct Iterations {
  std::vector<Times*> all;
  std::vector<const Times*> kinds[2];
};

/// The last iterations that fit a window, `now` included, of those after iteration `begin`.
Iterations iterations_of(Times& now, std::deque<Times>& past, std::uint64_t begin);

/// This rank's part.
std::vector<double> message_of(const Iterations& window, std::size_t gradients,
                               std::size_t segments);

/// What the least of all parts says. Also tells each iteration of this rank how long its segments
/// waited for peers.
Window window_of(const std::vector<double>& message, const Iterations& window,
                 std::size_t gradients, std::size_t segments);

}  // namespace hccl::split
