// Pairwise: in step k rank r sends to r + k and receives from r - k, so that every rank has exactly
// one message in each direction at any time.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {

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
