// The planner for the costs of a CostModel, fast enough to run while training does. Pure.
#pragma once

#include "split/cost_model.h"
#include "split/planner.h"

namespace hccl::split {

/// The best plan in at most problem.max_segments segments. More than 8 are looked for only while
/// twice as many gain anything: most networks need few. Where the search takes time with the square
/// of the gradients (with contention, or a table), neighbours are drawn together to 256 units
/// first; the plan and its bound are then those of the units. kPara: as plan_segments.
Result<Plan> best_plan(const Problem& problem, const CostModel& costs);

/// What these segments will take. kPara: as predict with a cost.
Result<Prediction> predict(const Problem& problem, const Segments& segments,
                           const CostModel& costs);

}  // namespace hccl::split
