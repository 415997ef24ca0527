// Direct (HCCL: fullmesh): every rank exchanges with every other rank at once, one step in each
// phase. Rank j owns chunk j: it receives the inputs of all ranks, folds them in rank order, and
// sends the sum to all ranks that need it. The order of the fold does not depend on timing or size.
#include <cstddef>
#include <utility>
#include <vector>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// All other ranks, beginning with the next rank, so that the first messages of all ranks go to
// different ranks.
std::vector<int> others(const Shape& shape) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(shape.size));
  for (int i = 1; i < shape.size; ++i) ranks.push_back(wrap(shape.rank + i, shape.size));
  return ranks;
}

// Every rank sends from(peer) to each peer, and receives into(peer) from that peer.
Step exchange(const Shape& shape, const auto& from, const auto& into) {
  Step step;
  step.sends.reserve(static_cast<std::size_t>(shape.size - 1));
  step.recvs.reserve(static_cast<std::size_t>(shape.size - 1));
  for (const int peer : others(shape)) {
    step.sends.push_back(send(peer, from(peer)));
    step.recvs.push_back(recv(peer, into(peer)));
  }
  return step;
}

// Every rank sends chunk j to rank j, which folds all inputs into `into`.
Step reduce_own_chunk(const Shape& shape, Slice into) {
  const int rank = shape.rank;
  Step step = exchange(
      shape, [](int peer) { return in(peer); },
      [rank](int peer) { return scratch(slot_of(peer, rank), rank); });
  step.folds.push_back(fold_all(shape, into));
  return step;
}

// Every rank sends its own chunk, `own`, to all ranks.
Step spread_own_chunk(const Shape& shape, Slice own) {
  return exchange(shape, [own](int) { return own; }, [](int peer) { return out(peer); });
}

}  // namespace

Schedule allreduce_direct(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size, shape.size - 1);
  schedule.steps.push_back(reduce_own_chunk(shape, out(shape.rank)));
  schedule.steps.push_back(spread_own_chunk(shape, out(shape.rank)));
  return schedule;
}

// Has one phase instead of two, for short vectors, where latency dominates.
Schedule allreduce_one_shot(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(1, shape.size - 1);
  Step step = exchange(
      shape, [](int) { return in(0); },
      [&](int peer) { return scratch(slot_of(peer, shape.rank), 0); });
  step.folds.push_back(fold_all(shape, out(0)));
  schedule.steps.push_back(std::move(step));
  return schedule;
}

Schedule reduce_scatter_direct(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size, shape.size - 1);
  schedule.steps.push_back(reduce_own_chunk(shape, out(shape.rank)));
  return schedule;
}

Schedule allgather_direct(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  schedule.steps.push_back(spread_own_chunk(shape, in(shape.rank)));
  schedule.steps.front().folds.push_back(copy(out(shape.rank), in(shape.rank)));
  return schedule;
}

// As allreduce, but the sums go only to the root. The other ranks fold into a slot.
Schedule reduce_direct(const Shape& shape) {
  const int n = shape.size, rank = shape.rank, root = shape.root;
  if (n == 1) return copy_only();
  Schedule schedule = begin(n, n - 1);
  const Slice sum = rank == root ? out(rank) : scratch(0, rank);
  schedule.steps.push_back(reduce_own_chunk(shape, sum));
  Step gather;
  if (rank != root) {
    gather.sends.push_back(send(root, sum));
  } else {
    for (const int peer : others(shape)) gather.recvs.push_back(recv(peer, out(peer)));
  }
  schedule.steps.push_back(std::move(gather));
  return schedule;
}

// The root sends chunk j to rank j, then every rank sends its chunk to all ranks but the root.
Schedule broadcast_direct(const Shape& shape) {
  const int n = shape.size, rank = shape.rank, root = shape.root;
  Schedule schedule = begin(n);
  if (n == 1) return schedule;
  Step scatter, gather;
  if (rank != root) scatter.recvs.push_back(recv(root, out(rank)));
  for (const int peer : others(shape)) {
    if (rank == root) scatter.sends.push_back(send(peer, out(peer)));
    if (rank != root) gather.recvs.push_back(recv(peer, out(peer)));
    if (peer != root) gather.sends.push_back(send(peer, out(rank)));
  }
  schedule.steps.push_back(std::move(scatter));
  schedule.steps.push_back(std::move(gather));
  return schedule;
}

Schedule scatter_direct(const Shape& shape) {
  const int rank = shape.rank, root = shape.root;
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  Step scatter;
  if (rank != root) {
    scatter.recvs.push_back(recv(root, out(rank)));
  } else {
    for (const int peer : others(shape)) scatter.sends.push_back(send(peer, in(peer)));
    scatter.folds.push_back(copy(out(rank), in(rank)));
  }
  schedule.steps.push_back(std::move(scatter));
  return schedule;
}

Schedule alltoall_direct(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  Schedule schedule = begin(shape.size);
  schedule.steps.push_back(
      exchange(shape, [](int peer) { return in(peer); }, [](int peer) { return out(peer); }));
  schedule.steps.front().folds.push_back(copy(out(shape.rank), in(shape.rank)));
  return schedule;
}

}  // namespace hccl::schedule
