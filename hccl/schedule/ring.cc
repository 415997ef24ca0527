// Ring: rank r sends only to r + 1 and receives only from r - 1. The vector has n chunks, one for
// each rank. A chunk starts at one rank, collects every contribution on its way around (n - 1
// steps), and goes around once more with the result (n - 1 steps).
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// The chunk that `rank` sends in step `time` if it sent chunk `first` in step 0. A rank always
// sends the chunk that its neighbour sent one step earlier.
int passed_on(int first, int time, int size) { return wrap(first - time, size); }

}  // namespace

Schedule allreduce_ring(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  const int next = wrap(rank + 1, n), previous = wrap(rank - 1, n);
  Schedule ring = begin(n);
  for (int time = 0; time < n - 1; ++time) {
    const int given = passed_on(rank, time, n), taken = passed_on(rank, time + 1, n);
    ring.steps.push_back(step({send(next, time == 0 ? in(given) : out(given))},
                              {recv_fold(previous, out(taken), in(taken))}));
  }
  for (int time = 0; time < n - 1; ++time) {
    const int given = passed_on(rank + 1, time, n), taken = passed_on(rank + 1, time + 1, n);
    ring.steps.push_back(step({send(next, out(given))}, {recv(previous, out(taken))}));
  }
  return ring;
}

// Chunk r ends at rank r, so it starts at rank r + 1. Partial sums alternate between two slots: a
// rank sends from one slot while it receives into the other slot.
Schedule reduce_scatter_ring(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  const int next = wrap(rank + 1, n), previous = wrap(rank - 1, n);
  Schedule ring = begin(n, n > 2 ? 2 : 0);
  for (int time = 0; time < n - 1; ++time) {
    const int given = passed_on(rank - 1, time, n), taken = passed_on(rank - 1, time + 1, n);
    const Slice from = time == 0 ? in(given) : scratch((time - 1) % 2, given);
    const Slice into = time == n - 2 ? out(taken) : scratch(time % 2, taken);
    ring.steps.push_back(step({send(next, from)}, {recv_fold(previous, into, in(taken))}));
  }
  return ring;
}

Schedule allgather_ring(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  const int next = wrap(rank + 1, n), previous = wrap(rank - 1, n);
  Schedule ring = begin(n);
  for (int time = 0; time < n - 1; ++time) {
    const int given = passed_on(rank, time, n), taken = passed_on(rank, time + 1, n);
    ring.steps.push_back(
        step({send(next, time == 0 ? in(given) : out(given))}, {recv(previous, out(taken))}));
  }
  ring.steps.front().folds.push_back(copy(out(rank), in(rank)));
  return ring;
}

}  // namespace hccl::schedule
