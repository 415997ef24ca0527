// Pairwise: in step k rank r sends to r + k and receives from r - k, so every rank has exactly one
// message in each direction at any time. A rank folds its chunk once, when all inputs have arrived.
// Pairwise takes as many steps and bytes as a ring, but rounds once instead of n - 1 times.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

void add_reduce_scatter(Schedule& schedule, const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  for (int k = 1; k < n; ++k) {
    const int target = wrap(rank + k, n), source = wrap(rank - k, n);
    schedule.steps.push_back(
        step({send(target, in(target))}, {recv(source, scratch(slot_of(source, rank), rank))}));
  }
  schedule.steps.back().folds.push_back(fold_all(shape, out(rank)));
}

}  // namespace

Schedule allreduce_pairwise(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  Schedule schedule = begin(n, n - 1);
  add_reduce_scatter(schedule, shape);
  for (int k = 1; k < n; ++k) {
    const int target = wrap(rank + k, n), source = wrap(rank - k, n);
    schedule.steps.push_back(step({send(target, out(rank))}, {recv(source, out(source))}));
  }
  return schedule;
}

Schedule reduce_scatter_pairwise(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size, shape.size - 1);
  add_reduce_scatter(schedule, shape);
  return schedule;
}

Schedule alltoall_pairwise(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  Schedule schedule = begin(n);
  for (int k = 1; k < n; ++k) {
    const int target = wrap(rank + k, n), source = wrap(rank - k, n);
    schedule.steps.push_back(step({send(target, in(target))}, {recv(source, out(source))}));
  }
  schedule.steps.front().folds.push_back(copy(out(rank), in(rank)));
  return schedule;
}

}  // namespace hccl::schedule
