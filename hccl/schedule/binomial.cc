// Binomial tree, ceil(log2 n) steps. Ranks are counted from the root on: the root is 0.
//   broadcast  at distance 1, 2, 4, … a rank with the vector sends it to the rank that far ahead
//   reduce     the same in reverse, with sums instead of copies
//   scatter    at distance …, 4, 2, 1 a holder of several blocks sends the farther half of them

#include <algorithm>
#include <vector>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// The rank, counted from the root.
int relative_rank_of(const Shape& shape) { return wrap(shape.rank - shape.root, shape.size); }
int real_rank(int relative_rank, const Shape& shape) {
  return wrap(relative_rank + shape.root, shape.size);
}

// The first distance of reduce and scatter: half of the smallest power of two that is at least
// `size`.
int farthest(int size) { return (1 << ceil_log2(size)) / 2; }

}  // namespace

Schedule broadcast_binomial(const Shape& shape) {
  const int n = shape.size, relative_rank = relative_rank_of(shape);
  Schedule schedule = begin(1);
  for (int distance = 1; distance < n; distance *= 2) {
    if (relative_rank < distance && relative_rank + distance < n) {
      schedule.steps.push_back(
          step({send(real_rank(relative_rank + distance, shape), out(0))}, {}));
    } else if (relative_rank >= distance && relative_rank < 2 * distance) {
      schedule.steps.push_back(
          step({}, {recv(real_rank(relative_rank - distance, shape), out(0))}));
    }
  }
  return schedule;
}

Schedule reduce_binomial(const Shape& shape) {
  const int n = shape.size, relative_rank = relative_rank_of(shape);
  if (n == 1) return copy_only();
  Schedule schedule = begin(1);
  const Slice sum = relative_rank == 0 ? out(0) : scratch(0, 0);
  Slice here = in(0);  // the sum so far; before the first fold, the input
  for (int distance = farthest(n); distance >= 1; distance /= 2) {
    if (relative_rank < distance && relative_rank + distance < n) {
      const int child = real_rank(relative_rank + distance, shape);
      schedule.steps.push_back(step({}, {recv_fold(child, sum, here)}));
      here = sum;
    } else if (relative_rank >= distance && relative_rank < 2 * distance) {
      schedule.steps.push_back(step({send(real_rank(relative_rank - distance, shape), here)}, {}));
    }
  }
  schedule.scratch_slots = here.buffer == Buffer::kScratch ? 1 : 0;
  return schedule;
}

// A rank that must pass blocks on keeps the received blocks in slots, its own block in slot 0.
Schedule scatter_binomial(const Shape& shape) {
  const int n = shape.size, relative_rank = relative_rank_of(shape);
  if (n == 1) return copy_only();
  Schedule schedule = begin(n);
  for (int distance = farthest(n); distance >= 1; distance /= 2) {
    const int beyond = relative_rank % (2 * distance);
    if (beyond == 0 && relative_rank + distance < n) {
      const int child = relative_rank + distance, count = std::min(distance, n - child);
      Step give;
      for (const Slice& from : around(relative_rank == 0 ? Buffer::kIn : Buffer::kScratch,
                                      real_rank(child, shape), count, n, distance)) {
        give.sends.push_back(send(real_rank(child, shape), from));
      }
      schedule.steps.push_back(std::move(give));
    } else if (beyond == distance) {
      const int parent = real_rank(relative_rank - distance, shape),
                count = std::min(distance, n - relative_rank);
      if (count == 1) {
        schedule.steps.push_back(step({}, {recv(parent, out(shape.rank))}));
        continue;
      }
      Step take;
      for (const Slice& into : around(Buffer::kScratch, shape.rank, count, n, 0)) {
        take.recvs.push_back(recv(parent, into));
      }
      take.folds.push_back(copy(out(shape.rank), scratch(0, shape.rank)));
      schedule.scratch_slots = count;
      schedule.steps.push_back(std::move(take));
    }
  }
  if (relative_rank == 0)
    schedule.steps.front().folds.push_back(copy(out(shape.rank), in(shape.rank)));
  return schedule;
}

}  // namespace hccl::schedule
