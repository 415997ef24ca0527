// Recursive halving, then doubling, among P = 2^k ranks with P chunks. Halving works at distances
// P/2, P/4, …, 1: each of two partners sends the half of its chunks that its partner keeps. At the
// end rank v holds the sum of chunk v. Doubling is the reverse. A rank always works on one run of
// chunks, so a step sends one slice. Ranks beyond a power of two send their vector to a neighbour
// first and receive the result at the end.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// The run of `count` chunks (a power of two) that contains chunk `index` and starts at a multiple
// of `count`.
Stretch kept(int index, int count) { return {index / count * count, count}; }
Stretch given(int index, int count) { return kept(index ^ count, count); }

void add_doubling(Schedule& schedule, int index, int size) {
  for (int distance = 1; distance < schedule.chunks; distance *= 2) {
    const int partner = core_rank(index ^ distance, size);
    const Stretch mine = kept(index, distance), theirs = given(index, distance);
    schedule.steps.push_back(step({send(partner, out(mine.first, mine.count))},
                                  {recv(partner, out(theirs.first, theirs.count))}));
  }
}

}  // namespace

Schedule allreduce_halving_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  const CorePlace place = core_place(shape.rank, shape.size);
  const int all = place.core;
  Schedule schedule = begin(all);
  if (place.idle) {
    schedule.steps.push_back(step({send(place.partner, in(0, all))}, {}));
    schedule.steps.push_back(step({}, {recv(place.partner, out(0, all))}));
    return schedule;
  }
  const bool pair = place.partner >= 0;
  if (pair) schedule.steps.push_back(step({}, {recv_fold(place.partner, out(0, all), in(0, all))}));
  for (int distance = all / 2; distance >= 1; distance /= 2) {
    // Before the first fold, the data is still in kIn.
    const auto here = distance == all / 2 && !pair ? in : out;
    const int partner = core_rank(place.index ^ distance, shape.size);
    const Stretch mine = kept(place.index, distance), theirs = given(place.index, distance);
    schedule.steps.push_back(
        step({send(partner, here(theirs.first, theirs.count))},
             {recv_fold(partner, out(mine.first, mine.count), here(mine.first, mine.count))}));
  }
  add_doubling(schedule, place.index, shape.size);
  if (pair) schedule.steps.push_back(step({send(place.partner, out(0, all))}, {}));
  return schedule;
}

// The half that a rank keeps in the first step lies in scratch, one slot for each chunk. The last
// step folds into kOut.
Schedule reduce_scatter_halving_doubling(const Shape& shape) {
  const int n = shape.size, rank = shape.rank;
  if (n == 1) return copy_only();
  const int base = kept(rank, n / 2).first;
  Schedule schedule = begin(n, n > 2 ? n / 2 : 0);
  for (int distance = n / 2; distance >= 1; distance /= 2) {
    const auto here = [&](Stretch run) {
      return distance == n / 2 ? in(run.first, run.count)
                               : scratch(run.first - base, run.first, run.count);
    };
    const Stretch mine = kept(rank, distance), theirs = given(rank, distance);
    const Slice into =
        distance == 1 ? out(rank) : scratch(mine.first - base, mine.first, mine.count);
    schedule.steps.push_back(step({send(rank ^ distance, here(theirs))},
                                  {recv_fold(rank ^ distance, into, here(mine))}));
  }
  return schedule;
}

Schedule allgather_halving_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  add_doubling(schedule, shape.rank, shape.size);
  schedule.steps.front().sends.front().from = in(shape.rank);
  schedule.steps.front().folds.push_back(copy(out(shape.rank), in(shape.rank)));
  return schedule;
}

}  // namespace hccl::schedule
