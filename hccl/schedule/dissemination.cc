// Dissemination: at distance 1, 2, 4, … every rank tells the one ahead that it, and all it has
// heard of, have arrived. After ceil(log2 n) steps everyone has heard of everyone.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {

Schedule barrier_dissemination(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  Schedule schedule = begin(0);
  for (int distance = 1; distance < n; distance *= 2) {
    schedule.steps.push_back(step({send(wrap(rank + distance, n), nothing())},
                                  {recv(wrap(rank - distance, n), nothing())}));
  }
  return schedule;
}

}  // namespace hccl::schedule
