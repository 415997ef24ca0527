// Bruck's pattern (HCCL: NB) on a circle of n ranks and n chunks: ceil(log2 n) steps in each phase
// for any n. Rank r counts chunks from its own: offset j is chunk r + j.
//
// Allgather: a rank with offsets [0, half) receives [half, live) from rank r + half, which counts
// these chunks from offset 0 on; live grows 1, 2, …, n. Reduce-scatter is the reverse: a rank sends
// its partial sums of [half, live) to rank r + half and receives those of [0, live - half) from
// rank r - half, until only offset 0, its own chunk, is left. half = ceil(live / 2), so the
// sequence reaches n exactly.
//
// A run of chunks that wraps around the end of the vector is sent as two slices.
#include <vector>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

int half_of(int live) { return live - live / 2; }

// The number of live offsets before each step of reduce-scatter: n, …, 3, 2.
std::vector<int> live_counts(int size) {
  std::vector<int> counts;
  for (int live = size; live > 1; live = half_of(live)) counts.push_back(live);
  return counts;
}

// The slices with offsets [first, first + count) of `rank` in a buffer. In kScratch, the chunk at
// offset j lies in slot j.
std::vector<Slice> offsets(Buffer buffer, int rank, int first, int count, int size) {
  return around(buffer, rank + first, count, size, first);
}

// `partials` holds the sums of chunks that other ranks own; `result` receives the sum of this
// rank's own chunk.
void add_reduce_scatter(Schedule& schedule, const Shape& shape, Buffer partials, Buffer result) {
  const int n = shape.size, rank = shape.rank;
  for (const int live : live_counts(n)) {
    const int half = half_of(live), moved = live - half;
    const Buffer here = live == n ? Buffer::kIn : partials;
    const Buffer there = live == 2 ? result : partials;
    Step next;
    for (const Slice& from : offsets(here, rank, half, moved, n)) {
      next.sends.push_back(send(wrap(rank + half, n), from));
    }
    const std::vector<Slice> into = offsets(there, rank, 0, moved, n);
    const std::vector<Slice> with = offsets(here, rank, 0, moved, n);
    for (std::size_t i = 0; i < into.size(); ++i) {
      next.recvs.push_back(recv_fold(wrap(rank - half, n), into[i], with[i]));
    }
    // If `live` is odd, one offset of [0, half) receives nothing. The chunk at that offset is
    // copied, so that all of [0, half) lies in one buffer.
    if (here == Buffer::kIn && moved < half) {
      next.folds.push_back(copy(offsets(partials, rank, moved, 1, n).front(),
                                offsets(here, rank, moved, 1, n).front()));
    }
    schedule.steps.push_back(std::move(next));
  }
}

void add_allgather(Schedule& schedule, const Shape& shape, Buffer own) {
  const int n = shape.size, rank = shape.rank;
  const std::vector<int> counts = live_counts(n);
  for (auto live = counts.rbegin(); live != counts.rend(); ++live) {
    const int half = half_of(*live), moved = *live - half;
    const Buffer here = *live == 2 ? own : Buffer::kOut;
    Step next;
    for (const Slice& from : offsets(here, rank, 0, moved, n)) {
      next.sends.push_back(send(wrap(rank - half, n), from));
    }
    for (const Slice& into : offsets(Buffer::kOut, rank, half, moved, n)) {
      next.recvs.push_back(recv(wrap(rank + half, n), into));
    }
    if (here == Buffer::kIn) next.folds.push_back(copy(out(rank), in(rank)));
    schedule.steps.push_back(std::move(next));
  }
}

}  // namespace

Schedule allreduce_bruck(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  add_reduce_scatter(schedule, shape, Buffer::kOut, Buffer::kOut);
  add_allgather(schedule, shape, Buffer::kOut);
  return schedule;
}

Schedule reduce_scatter_bruck(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size, shape.size > 2 ? half_of(shape.size) : 0);
  add_reduce_scatter(schedule, shape, Buffer::kScratch, Buffer::kOut);
  return schedule;
}

Schedule allgather_bruck(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  add_allgather(schedule, shape, Buffer::kIn);
  return schedule;
}

}  // namespace hccl::schedule
