#include "hccl/exec/rank_schedule.h"

#include <algorithm>

namespace hccl::exec {
namespace {

bool reduces(const schedule::Recv& recv) { return recv.reduce_with.has_value(); }

}  // namespace

RankSchedule make_rank_schedule(const schedule::Algorithm& algorithm, const schedule::Shape& shape,
                                std::span<const int> order) {
  RankSchedule rank_schedule;
  schedule::Shape other = shape;
  const auto of_all = [&](const schedule::Fold& fold) {
    return fold.inputs.size() == static_cast<std::size_t>(shape.size);
  };
  if (!algorithm.any_order) order = {};
  const auto position = std::find(order.begin(), order.end(), shape.rank) - order.begin();
  const int own = order.empty() ? shape.rank : static_cast<int>(position);
  for (other.rank = 0; other.rank < shape.size; ++other.rank) {
    schedule::Schedule schedule = algorithm.build(other);
    rank_schedule.most_slots = std::max(rank_schedule.most_slots, schedule.scratch_slots);
    for (const schedule::Step& step : schedule.steps) {
      const auto reducing = std::count_if(step.recvs.begin(), step.recvs.end(), reduces);
      rank_schedule.most_reducing =
          std::max(rank_schedule.most_reducing, static_cast<std::size_t>(reducing));
      rank_schedule.folds_at_once = rank_schedule.folds_at_once && reducing == 0 &&
                                    std::all_of(step.folds.begin(), step.folds.end(), of_all);
    }
    if (other.rank == own) rank_schedule.schedule = std::move(schedule);
  }
  if (order.empty()) return rank_schedule;
  const auto at = [&](int peer) { return order[static_cast<std::size_t>(peer)]; };
  for (schedule::Step& step : rank_schedule.schedule.steps) {
    for (schedule::Send& send : step.sends) send.peer = at(send.peer);
    for (schedule::Recv& recv : step.recvs) recv.peer = at(recv.peer);
  }
  return rank_schedule;
}

void open_links(transport::Mesh& mesh, const RankSchedule& rank_schedule) {
  for (const schedule::Step& step : rank_schedule.schedule.steps) {
    for (const schedule::Send& send : step.sends) mesh.expect(send.peer);
  }
}

}  // namespace hccl::exec
