// The second mode, for training whose optimizer updates weights segment by segment, without a norm
// over all gradients: what is needed first in the next forward goes first. Pure functions; seconds
// from the start of the iteration.
//
// Backward makes last what the next forward needs first. So whenever the wire is free, the newest
// gradient that is ready goes next, in chunks, so that a newer one waits for one chunk at most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "split/planner.h"

namespace hccl::split {

struct PriorityProblem {
  std::span<const std::uint64_t> bytes;  ///< of each gradient, in the order of backward
  std::span<const double> ready;         ///< on the slowest rank
  /// When the next forward needs each, if nothing holds it up: falls with the index.
  std::span<const double> due;
  /// Most bytes of one message, which may hold several gradients; 0: the largest size with which
  /// the next iteration ends within 1 % of the earliest.
  std::uint64_t chunk_bytes = 0;
};

/// A part of one gradient. Its end goes first, so that what follows on it in memory, the beginning
/// of the gradient behind it, can be in the same message.
struct Piece {
  std::uint32_t gradient = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Piece&) const = default;
};

struct Message {
  std::vector<Piece> pieces;
  double start = 0;
  double end = 0;
};

struct PriorityPlan {
  std::vector<Message> messages;  ///< in the order in which all ranks send them
  std::vector<double> done;       ///< when each gradient is wholly reduced
  /// By how much the next iteration is held up: the most that a gradient is done behind its due
  /// time; not below 0.
  double late = 0;
  std::uint64_t chunk_bytes = 0;
};

/// Optimal among all orders (the earliest due goes first, with preemption) but for what a chunk
/// rounds and what its start costs. kPara: as plan_segments; or due times that rise.
Result<PriorityPlan> plan_newest_first(const PriorityProblem& problem, const AffineCost& cost);

/// How late the next iteration is with the segments of a plan that reduces all in order.
Result<double> late_in_order(const PriorityProblem& problem,
                             std::span<const std::uint32_t> last_indices, const AffineCost& cost);

}  // namespace hccl::split
