// The newest-first order, for training whose optimizer updates weights segment by segment, without
// a norm over all gradients. The gradients that the next forward needs first are sent first. All
// functions are pure; times are seconds from the start of the iteration.
//
// Backward computes last the gradients that the next forward needs first. So whenever the network
// is free, a chunk of the newest ready gradient is sent next. A newer gradient then waits for at
// most one chunk.
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
  /// The time at which the next forward, if not delayed, needs each gradient. It must not rise with
  /// the index.
  std::span<const double> due;
  /// The most bytes of one message, which may contain several gradients. 0 means the largest size
  /// with which the next iteration ends within 1 % of the earliest end.
  std::uint64_t chunk_bytes = 0;
};

/// A part of one gradient. The end of a gradient is sent before its start. So a message can contain
/// the start of a gradient together with the end of the gradient that lies directly before it in
/// memory.
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
  /// The delay of the next iteration: the largest difference between the time at which a gradient
  /// is reduced and its due time; at least 0.
  double late = 0;
  std::uint64_t chunk_bytes = 0;
};

/// Plans an order that is optimal among all orders (earliest due time first, with preemption),
/// except for the rounding and the start cost of chunks. Fails with kPara as plan_segments() does,
/// or if due times rise.
Result<PriorityPlan> plan_newest_first(const PriorityProblem& problem, const AffineCost& cost);

/// Returns the delay of the next iteration if a plan reduces all gradients in order, in segments.
Result<double> late_in_order(const PriorityProblem& problem,
                             std::span<const std::uint32_t> last_indices, const AffineCost& cost);

}  // namespace hccl::split
