// The planner, fast enough for running training. Pure.
#pragma once

#include "split/planner.h"

namespace hccl::split {

/// The best plan with at most problem.max_segments segments. It begins with 8 segments and doubles
/// their number while that gains anything, because most networks need few. If the time of the
/// search is quadratic in the number of gradients (with contention, or with a table), adjacent
/// gradients are first joined to 256 units; the plan and its bound are then those of the units.
/// kPara: as for plan_segments.
Result<Plan> best_plan(const Problem& problem, const Cost& cost);

}  // namespace hccl::split
