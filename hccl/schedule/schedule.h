// A schedule is the data that describes the part of one rank in one collective. Schedules are pure
// functions of the shape, without I/O.
//
// Terms: the *vector* of a collective is cut into `chunks` logical chunks 0..chunks-1. A rank holds
// chunks in three buffers: kIn (the caller's send buffer, never written), kOut (its receive buffer)
// and kScratch (slots, each large enough for one chunk). The buffers hold these chunks:
//
//   operation       vector                       kIn holds          kOut holds
//   allreduce       the caller's vector          all chunks         all chunks
//   reduce          the caller's vector          all chunks         all chunks, on the root only
//   broadcast       the root's vector            nothing            all chunks (the root's: filled)
//   reduce-scatter  size blocks, one per rank    all chunks         the chunks of block `rank`
//   allgather       size blocks, one per rank    block `rank`       all chunks
//   scatter         size blocks, one per rank    all, root only     the chunks of block `rank`
//   alltoall        size blocks                  block d: for d     block s: from s
//   barrier         nothing (chunks = 0)
//
// In place, kIn and kOut share memory: in allreduce and reduce they are the same buffer; in
// allgather kIn is block `rank` of kOut; in reduce-scatter, and on the root of a scatter, kOut is
// block `rank` of kIn. A schedule must therefore read a chunk of kIn before it writes the same
// chunk of kOut, and must not write a chunk of kOut while a send reads the same chunk of kIn. The
// checker proves both.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hccl/base/types.h"

namespace hccl::schedule {

enum class Buffer : std::uint8_t { kIn, kOut, kScratch };

/// Chunks [chunk, chunk + count) of the vector in one buffer. In kScratch they lie in the slots
/// [slot, slot + count).
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

/// Receives into `into`. With `reduce_with`, into = reduce_with op received, chunk by chunk.
/// `reduce_with` has the same chunks as `into` and may be the same memory.
struct Recv {
  int peer = 0;
  Slice into;
  std::optional<Slice> reduce_with;
};

/// into = inputs[0] op inputs[1] op …, left to right; with one input the fold is a copy. An input
/// may be `into`.
struct Fold {
  Slice into;
  std::vector<Slice> inputs;
};

/// All sends and receives of a step run concurrently. After the last of them, the folds of the step
/// run in order; then the lane continues with the next step. The schedule of a rank contains only
/// steps in which that rank has work.
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
  /// Requested pipeline depth, at least 1: the number of chunks that trees and chains cut the
  /// vector into. Other algorithms ignore it.
  int depth = 1;
  /// Number of hosts, a divisor of `size`, if all hosts have the same number of ranks and ranks are
  /// numbered host by host. It is 1 otherwise, or if the algorithm need not know the hosts.
  int hosts = 1;
};

}  // namespace hccl::schedule
