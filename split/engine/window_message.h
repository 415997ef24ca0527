// What the ranks tell each other of a window of iterations: one message of each rank, the same
// length on all. The least of every value over all ranks counts, so one allreduce does it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "split/engine/iteration.h"
#include "split/engine/tuner.h"

namespace hccl::split {

/// The iterations of a window: all of them, and by kind (behind backward, beside it).
struct Iterations {
  std::vector<Times*> all;
  std::vector<const Times*> kinds[2];
};

/// The last Tuner::kWindow iterations, `now` included, of those after iteration `begin`.
Iterations iterations_of(Times& now, std::deque<Times>& past, std::uint64_t begin);

/// This rank's part.
std::vector<double> message_of(const Iterations& window, std::size_t gradients,
                               std::size_t segments);

/// What the least of all parts says. Also tells each iteration of this rank how long its segments
/// waited for peers.
Window window_of(const std::vector<double>& message, const Iterations& window,
                 std::size_t gradients, std::size_t segments);

}  // namespace hccl::split
