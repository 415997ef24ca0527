// Ring: rank r only sends to r + 1 and only receives from r - 1. With n ranks the vector has n
// chunks; a chunk starts at one rank, collects every contribution on its way around (n - 1 steps),
// and goes around once more as a finished chunk (n - 1 steps).
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// The chunk that `rank` passes on in `time` if it passed on `first` at time 0: each time the chunk
// that it has just received, which its neighbour passed on one step earlier.
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

// Chunk r ends at rank r, so it starts at rank r + 1. Partial sums alternate between two slots: one
// is sent while the other is filled.
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
