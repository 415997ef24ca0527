#include "hccl/exec/plan.h"

#include <algorithm>

namespace hccl::exec {
namespace {

bool reduces(const schedule::Recv& recv) { return recv.reduce_with.has_value(); }

}  // namespace

Plan make_plan(const schedule::Algorithm& algorithm, const schedule::Shape& shape) {
  Plan plan;
  schedule::Shape other = shape;
  for (other.rank = 0; other.rank < shape.size; ++other.rank) {
    schedule::Schedule schedule = algorithm.build(other);
    plan.most_slots = std::max(plan.most_slots, schedule.scratch_slots);
    for (const schedule::Step& step : schedule.steps) {
      const auto reducing = std::count_if(step.recvs.begin(), step.recvs.end(), reduces);
      plan.most_reducing = std::max(plan.most_reducing, static_cast<std::size_t>(reducing));
    }
    if (other.rank == shape.rank) plan.schedule = std::move(schedule);
  }
  return plan;
}

}  // namespace hccl::exec
