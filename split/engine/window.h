// What a window of traced iterations measured: what the ranks' messages give, and what the
// automatic plan learns from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hccl::split {

/// Some iterations with the same segments, merged over ranks. Seconds from the begin of an
/// iteration.
struct Window {
  /// Medians over the iterations of one kind, of the slowest rank; empty if there was none.
  struct Kind {
    std::vector<double> ready;
    double compute_end = 0;
    double end = 0;               ///< when the program had all gradients
    std::vector<double> start;    ///< of each segment
    std::vector<double> seconds;  ///< of each segment: from the last rank's start to the last end
    std::size_t iterations = 5;   ///< that the medians are of
    double compute_error = 0;     ///< standard error of compute_end
    double seconds_error = 0;     ///< and of the sum of `seconds`
    bool empty() const { return ready.empty(); }
  };
  std::uint64_t last_iteration = 0;
  Kind alone;       ///< segments ran behind backward
  Kind overlapped;  ///< segments ran beside it
};

}  // namespace hccl::split
