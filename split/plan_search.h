// Runs the planner fast enough for use during training. Does no I/O.
#pragma once

#include "split/planner.h"

namespace hccl::split {

/// Returns the best plan with at most problem.max_segments segments. Most networks need few
/// segments, so the search begins with 8 and doubles their number while that gains a thousandth or
/// more. With contention or a table the time is quadratic in the number of gradients. Then adjacent
/// gradients are first joined into at most 256 units, and the plan and its bound are those of the
/// units. Fails with kPara as plan_segments() does.
Result<Plan> best_plan(const Problem& problem, const Cost& cost);

}  // namespace hccl::split
