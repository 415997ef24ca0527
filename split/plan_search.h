// The planner, fast enough for running training. Pure.
#pragma once

#include "split/planner.h"

namespace hccl::split {

/// The best plan with at most problem.max_segments segments. The search begins with 8 segments and
/// doubles their number while that gains a thousandth or more, because most networks need few. If
/// its time is quadratic in the number of gradients (with contention, or with a table), adjacent
/// gradients are first joined into at most 256 units. The plan and its bound are then those of the
/// units.
/// kPara: as for plan_segments.
Result<Plan> best_plan(const Problem& problem, const Cost& cost);

}  // namespace hccl::split
