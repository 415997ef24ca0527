#include "hccl/exec/plan.h"

#include <algorithm>

namespace hccl::exec {
namespace {

bool reduces(const schedule::Recv& recv) { return recv.reduce_with.has_value(); }

}  // namespace

Plan make_plan(const schedule::Algorithm& algorithm, const schedule::Shape& shape,
               std::span<const int> order) {
  Plan plan;
  schedule::Shape other = shape;
  const auto of_all = [&](const schedule::Fold& fold) {
    return fold.inputs.size() == static_cast<std::size_t>(shape.size);
  };
  if (!algorithm.any_order) order = {};
  const auto place = std::find(order.begin(), order.end(), shape.rank) - order.begin();
  const int own = order.empty() ? shape.rank : static_cast<int>(place);
  for (other.rank = 0; other.rank < shape.size; ++other.rank) {
    schedule::Schedule schedule = algorithm.build(other);
    plan.most_slots = std::max(plan.most_slots, schedule.scratch_slots);
    for (const schedule::Step& step : schedule.steps) {
      const auto reducing = std::count_if(step.recvs.begin(), step.recvs.end(), reduces);
      plan.most_reducing = std::max(plan.most_reducing, static_cast<std::size_t>(reducing));
      plan.folds_at_once = plan.folds_at_once && reducing == 0 &&
                           std::all_of(step.folds.begin(), step.folds.end(), of_all);
    }
    if (other.rank == own) plan.schedule = std::move(schedule);
  }
  if (order.empty()) return plan;
  const auto at = [&](int peer) { return order[static_cast<std::size_t>(peer)]; };
  for (schedule::Step& step : plan.schedule.steps) {
    for (schedule::Send& send : step.sends) send.peer = at(send.peer);
    for (schedule::Recv& recv : step.recvs) recv.peer = at(recv.peer);
  }
  return plan;
}

void open_links(transport::Mesh& mesh, const Plan& plan) {
  for (const schedule::Step& step : plan.schedule.steps) {
    for (const schedule::Send& send : step.sends) mesh.expect(send.peer);
  }
}

}  // namespace hccl::exec
