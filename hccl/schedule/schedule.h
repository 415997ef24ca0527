// Schedules: what one rank does in one collective, as data. Pure functions of the shape; no I/O.
//
// Words. The *vector* of a collective is cut into `chunks` logical chunks 0..chunks-1. A rank holds
// chunks in three buffers: kIn (the caller's send buffer, never written), kOut (its receive buffer)
// and kScratch (slots, each large enough for one chunk). Where chunk c of the vector lies:
//
//   operation       vector                       kIn holds          kOut holds
//   allreduce       the caller's vector          all chunks         all chunks
//   reduce          the caller's vector          all chunks         all chunks, on the root only
//   broadcast       the root's vector            nothing            all chunks (the root's: filled)
//   reduce-scatter  size blocks, one a rank      all chunks         the chunks of block `rank`
//   allgather       size blocks, one a rank      block `rank`       all chunks
//   scatter         size blocks, one a rank      all, root only     the chunks of block `rank`
//   alltoall        size blocks                  block d: for d     block s: from s
//   barrier         nothing (chunks = 0)
//
// kIn and kOut may be the same memory (in place: allreduce, reduce; allgather: kIn is block `rank`
// of kOut; reduce-scatter: kOut is block `rank` of kIn; scatter on the root likewise), so a
// schedule may not read a chunk of kIn after writing the same chunk of kOut, and a chunk of kOut
// that is written while a send still reads the same chunk of kIn is an error. The checker proves
// this too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/types.h"

namespace hccl::schedule {

enum class Buffer : std::uint8_t { kIn, kOut, kScratch };

/// Chunks [chunk, chunk + count) of the vector, as they lie in one buffer. In kScratch they lie in
/// the slots [slot, slot + count).
struct Slice {
  Buffer buffer = Buffer::kOut;
  int chunk = 0;
  int count = 1;
  int slot = 0;
};

struct Send {
  int peer = 0;
  Slice from;
};

/// Receives into `into`; with `reduce_with`, into = reduce_with op received, chunk by chunk
/// (reduce_with has the same chunks; it may be the same place as into).
struct Recv {
  int peer = 0;
  Slice into;
  std::optional<Slice> reduce_with;
};

/// into = inputs[0] op inputs[1] op …, left to right; one input is a copy. An input may be `into`.
struct Fold {
  Slice into;
  std::vector<Slice> inputs;
};

/// All sends and receives of a step run together; when all are done, its folds run in order; then
/// the lane continues with the next step. A rank without work in a step has no such step.
struct Step {
  std::vector<Send> sends;
  std::vector<Recv> recvs;
  std::vector<Fold> folds;
};

struct Schedule {
  int chunks = 0;         ///< logical chunks of the vector; the same on all ranks
  int scratch_slots = 0;  ///< of this rank
  std::vector<Step> steps;
};

/// The arguments that a schedule depends on.
struct Shape {
  int rank = 0;
  int size = 1;
  int root = 0;
  /// Requested pipeline depth: chunks of the vector for tree and chain; other algorithms ignore it.
  /// At least 1.
  int depth = 1;
  /// Hosts with equally many ranks each, which are numbered host by host; a divisor of size. 1
  /// otherwise, or where hosts do not matter.
  int hosts = 1;
};

}  // namespace hccl::schedule
