// Dissemination: at distance 1, 2, 4, … every rank sends an empty message to the rank that far
// ahead. The message says that the sender, and all ranks of which the sender knows, have arrived.
// After ceil(log2 n) steps every rank knows that all ranks have arrived.
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
