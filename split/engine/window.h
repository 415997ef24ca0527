// The measurements of a window of traced iterations. Each rank sends one message of the same
// length; one allreduce computes the minimum of every value over all ranks. Does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "split/engine/iteration.h"

namespace hccl::split {

/// Some iterations with the same segments, merged over ranks. Seconds from the start of an
/// iteration.
struct Window {
  static constexpr std::uint64_t kIterations = 10;  ///< the most iterations of a window
  /// Medians over the iterations of one kind, on the slowest rank. Empty if no such iteration ran.
  struct Medians {
    std::vector<double> ready;
    double compute_end = 0;
    double end = 0;               ///< when the program had all gradients
    std::vector<double> start;    ///< of each segment
    std::vector<double> seconds;  ///< of each segment: from the last rank's start to the last end
    std::size_t iterations = 5;   ///< number of iterations behind the medians
    bool empty() const { return ready.empty(); }
  };
  std::uint64_t last_iteration = 0;
  Medians alone;       ///< segments ran after backward
  Medians overlapped;  ///< segments ran beside backward
};

/// The iterations of a window: all of them, and by kind (0: without overlap, 1: with overlap).
struct Iterations {
  std::vector<Times*> all;
  std::vector<const Times*> kinds[2];
};

/// Returns the last iterations after `begin`, up to and with `now`, that fit into a window.
Iterations iterations_of(Times& now, std::deque<Times>& past, std::uint64_t begin);

/// Makes the message that this rank sends.
std::vector<double> message_of(const Iterations& window, std::size_t gradients,
                               std::size_t segments);

/// Reads the minima of all messages. Also stores in each iteration of this rank how long its
/// segments waited for peers.
Window window_of(const std::vector<double>& message, const Iterations& window,
                 std::size_t gradients, std::size_t segments);

}  // namespace hccl::split
