// The building blocks of schedules. They make a builder's code short: send(next, in(chunk)).
#pragma once

#include <utility>
#include <vector>

#include "hccl/schedule/ranks.h"
#include "hccl/schedule/schedule.h"

namespace hccl::schedule {

inline Slice in(int chunk, int count = 1) { return {Buffer::kIn, chunk, count, 0}; }
inline Slice out(int chunk, int count = 1) { return {Buffer::kOut, chunk, count, 0}; }
inline Slice scratch(int slot, int chunk, int count = 1) {
  return {Buffer::kScratch, chunk, count, slot};
}
/// The `count` chunks from wrap(first) on, one slice for each run of arc(). In kScratch they lie in
/// the slots from `slot` on.
inline std::vector<Slice> around(Buffer buffer, int first, int count, int size, int slot) {
  std::vector<Slice> slices;
  for (const Stretch& run : arc(first, count, size)) {
    slices.push_back({buffer, run.first, run.count, buffer == Buffer::kScratch ? slot : 0});
    slot += run.count;
  }
  return slices;
}
/// The slice of a barrier's message: no data.
inline Slice nothing() { return {Buffer::kOut, 0, 0, 0}; }

inline Send send(int peer, Slice from) { return {peer, from}; }
inline Recv recv(int peer, Slice into) { return {peer, into, {}}; }
/// into = with op received
inline Recv recv_fold(int peer, Slice into, Slice with) { return {peer, into, with}; }
inline Fold copy(Slice into, Slice from) { return {into, {from}}; }

inline Step step(std::vector<Send> sends, std::vector<Recv> recvs, std::vector<Fold> folds = {}) {
  return {std::move(sends), std::move(recvs), std::move(folds)};
}

/// A schedule of `chunks` chunks that has no steps yet.
inline Schedule begin(int chunks, int scratch_slots = 0) { return {chunks, scratch_slots, {}}; }

/// The slot in which the owner of a chunk keeps the input of `peer`. The owner's own input needs no
/// slot.
inline int slot_of(int peer, int rank) { return peer < rank ? peer : peer - 1; }
/// Folds all ranks' inputs of the chunk of `into`, which this rank owns, at once, in rank order.
inline Fold fold_all(const Shape& shape, Slice into) {
  Fold fold{into, {}};
  fold.inputs.reserve(static_cast<std::size_t>(shape.size));
  for (int source = 0; source < shape.size; ++source) {
    fold.inputs.push_back(source == shape.rank ? in(into.chunk)
                                               : scratch(slot_of(source, shape.rank), into.chunk));
  }
  return fold;
}

/// The schedule of a single rank: the result is its own vector.
inline Schedule copy_only() {
  Schedule alone = begin(1);
  alone.steps.push_back(step({}, {}, {copy(out(0), in(0))}));
  return alone;
}

}  // namespace hccl::schedule
