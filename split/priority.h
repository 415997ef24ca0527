// The newest-first order, for training whose optimizer updates weights segment by segment, without
// a norm over all gradients. This order sends first the gradients that the next forward needs
// first. Pure functions; times in seconds from the start of the iteration.
//
// Backward computes last the gradients that the next forward needs first. So whenever the network
// is free, the newest ready gradient goes next, in chunks. A newer gradient then waits for at most
// one chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "split/planner.h"

namespace hccl::split {

struct PriorityProblem {
  std::span<const std::uint64_t> bytes;  ///< of each gradient, in the order of backward
  std::span<const double> ready;         ///< ready times on the slowest rank
  /// The time at which an undelayed next forward needs each gradient; it must not rise with the
  /// index.
  std::span<const double> due;
  /// Most bytes of one message, which may contain several gradients. 0: the largest size with which
  /// the next iteration ends within 1 % of the earliest end.
  std::uint64_t chunk_bytes = 0;
};

/// A part of one gradient. The end of a gradient goes first. Then the same message can also contain
/// the start of the next gradient in memory, which is contiguous with that end.
struct Piece {
  std::uint32_t gradient = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Piece&) const = default;
};

struct GradientMessage {
  std::vector<Piece> pieces;
  double start = 0;
  double end = 0;
};

struct PriorityPlan {
  std::vector<GradientMessage> messages;  ///< in the order in which all ranks send them
  std::vector<double> done;               ///< time at which each gradient is completely reduced
  /// The delay of the next iteration: the largest difference between a gradient's end and its due
  /// time; at least 0.
  double late = 0;
  std::uint64_t chunk_bytes = 0;
};

/// Optimal among all orders (earliest due time first, with preemption), except for the rounding and
/// the start cost of chunks. kPara: as for plan_segments; or due times that rise.
Result<PriorityPlan> plan_newest_first(const PriorityProblem& problem, const AffineCost& cost);

/// The delay of the next iteration with the segments of a plan that reduces all gradients in order.
Result<double> late_in_order(const PriorityProblem& problem,
                             std::span<const std::uint32_t> last_indices, const AffineCost& cost);

}  // namespace hccl::split
