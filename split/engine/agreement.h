// What the ranks of a communicator tell each other about gradients: whether they have the same
// ones, what an allreduce costs, what they measured, and which plan comes next. All collective:
// every rank calls them in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hccl/core/communicator.h"
#include "split/cost_model.h"
#include "split/engine/tuner.h"
#include "split/newest_first.h"
#include "split/strategy.h"
#include "split/trace.h"

namespace hccl::split {

/// One rank's list of gradients. The spans are only read during the call.
struct GradientList {
  std::span<const std::uint64_t> counts;
  std::span<const std::string> names;
  DataType type = DataType::kFp32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::uint32_t> last_indices = {};
  int mode = 0;           ///< must be equal, too: Overlap::Mode
  bool parallel = false;  ///< and this, where it matters
};

/// kPara on all ranks, naming the first gradient that differs, or what else does. Two small
/// messages.
Status agree(core::Communicator& communicator, const GradientList& mine);

/// Values become their minimum over all ranks.
Status minimum(core::Communicator& communicator, std::span<double> values);

/// What allreduces of some sizes up to about `bytes` cost, equal on all ranks: by the
/// communicator's cost table, or timed now, for at most about 50 ms, where the table was not
/// measured. kOom.
Result<std::vector<CostSample>> cost_samples(core::Communicator& communicator, std::uint64_t bytes);

/// Rank 0's decision on all ranks, but for its `why`. kPara: it does not fit `gradients` gradients.
Status broadcast_decision(core::Communicator& communicator, Decision& decision,
                          std::size_t gradients);

/// The messages of newest first for the gradients of these traces, equal on all ranks: in elements
/// of `element` bytes. Rank 0's trace counts, with its segments for comparison. Collective; logged
/// at info. kPara on all ranks: the trace does not show enough.
struct Order {
  std::vector<Range> messages;
  double in_order = 0;  ///< for how long the next forward waits with the segments of the trace
  double late = 0;      ///< and with these messages
};
Result<Order> order_together(core::Communicator& communicator, const Trace& mine,
                             std::size_t element);

/// Segments for gradients of these sizes that are ready at these times (seconds; the slowest rank
/// counts) if segments run beside backward. Collective; logged at info.
Result<Segments> plan_together(core::Communicator& communicator,
                               std::span<const std::uint64_t> bytes, std::vector<double> ready);

}  // namespace hccl::split
