// Lets the ranks of a communicator agree about gradients: compares their lists, and exchanges the
// cost of an allreduce, their measurements, and the next plan. All functions are collective: every
// rank calls them in the same order.
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
  int mode = 0;           ///< an Overlap::Mode; must be equal on all ranks
  bool parallel = false;  ///< with an automatic plan, must be equal on all ranks
};

/// Compares the lists of all ranks, with two small messages. If lists differ, all ranks get kPara,
/// and the error text names the first gradient or the setting that differs.
Status agree(core::Communicator& communicator, const GradientList& mine);

/// Replaces each value by its minimum over all ranks.
Status minimum(core::Communicator& communicator, std::span<double> values);

/// Returns the costs of allreduces of some sizes up to about `bytes`, the same on all ranks. The
/// costs come from the communicator's cost table. If that table was not measured, the ranks time
/// allreduces now, for at most about 50 ms. The communicator must be open, which holds after its
/// first collective. Fails with kOom if memory is missing.
Result<std::vector<CostSample>> cost_samples(core::Communicator& communicator, std::uint64_t bytes);

/// Sends rank 0's decision, without its `why`, to all ranks. Fails with kPara if the decision does
/// not fit `gradients` gradients.
Status broadcast_decision(core::Communicator& communicator, Decision& decision,
                          std::size_t gradients);

/// The messages in the newest-first order (priority.h), the same on all ranks. order_together()
/// plans them, in elements of `element` bytes, from rank 0's trace, and logs them at info. It is
/// collective. If rank 0 cannot plan an order from its trace, all ranks get kPara.
struct Order {
  std::vector<Range> messages;
  double in_order = 0;  ///< seconds that the next forward waits with the trace's segments
  double late = 0;      ///< seconds that the next forward waits with these messages
};
Result<Order> order_together(core::Communicator& communicator, const Trace& mine,
                             std::size_t element);

/// Plans segments that run during backward. `bytes` has the size of each gradient, `ready` the
/// seconds until each gradient is ready; the latest rank's time counts. Collective; logs the plan
/// at info.
Result<Segments> plan_together(core::Communicator& communicator,
                               std::span<const std::uint64_t> bytes, std::vector<double> ready);

}  // namespace hccl::split
