// Exchanges between the ranks of a communicator about gradients: whether all ranks have the same
// gradients, the cost of an allreduce, their measurements, and the next plan. All functions are
// collective: every rank calls them in the same order.
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
  bool parallel = false;  ///< must be equal with an automatic plan
};

/// Compares the lists of all ranks, with two small messages. kPara on all ranks: they differ; the
/// text names the first gradient or the setting that differs.
Status agree(core::Communicator& communicator, const GradientList& mine);

/// Replaces each value by its minimum over all ranks.
Status minimum(core::Communicator& communicator, std::span<double> values);

/// The costs of allreduces of some sizes up to about `bytes`, equal on all ranks. They come from
/// the communicator's cost table. If the table was not measured, they are timed now, for at most
/// about 50 ms. kOom.
Result<std::vector<CostSample>> cost_samples(core::Communicator& communicator, std::uint64_t bytes);

/// Sends rank 0's decision, without its `why`, to all ranks. kPara: the decision does not fit
/// `gradients` gradients.
Status broadcast_decision(core::Communicator& communicator, Decision& decision,
                          std::size_t gradients);

/// The messages in the newest-first order (priority.h) for the gradients of these traces, in
/// elements of `element` bytes; equal on all ranks. Rank 0's trace counts; its segments serve for
/// comparison. Collective; logged at info. kPara on all ranks: rank 0 cannot plan an order from its
/// trace.
struct Order {
  std::vector<Range> messages;
  double in_order = 0;  ///< seconds that the next forward waits with the trace's segments
  double late = 0;      ///< the same with these messages
};
Result<Order> order_together(core::Communicator& communicator, const Trace& mine,
                             std::size_t element);

/// Plans segments that run during backward. `bytes`: of each gradient. `ready`: the time at which
/// each gradient is ready, in seconds; the slowest rank counts. Collective; logged at info.
Result<Segments> plan_together(core::Communicator& communicator,
                               std::span<const std::uint64_t> bytes, std::vector<double> ready);

}  // namespace hccl::split
