// Computes the addresses of the chunks of one slice of a collective.
//
// The vector of a collective is `blocks` blocks of `block` elements: one block for allreduce,
// reduce and broadcast, one block for each rank for other operations. The operation runs in slices.
// A slice takes elements [first, first + length) of every block. A schedule with `chunks` chunks
// cuts each of these parts into chunks / blocks chunks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hccl/base/call.h"
#include "hccl/schedule/schedule.h"

namespace hccl::exec {

class ChunkLayout {
 public:
  /// `chunks` is the schedule's number of chunks, a multiple of the number of blocks (0 for a
  /// barrier). `slots` is true if the schedule of any rank uses scratch slots.
  ChunkLayout(const Call& call, int rank, int size, int chunks, bool slots, std::uint64_t first,
              std::uint64_t length);

  /// Returns the length in bytes of `count` chunks from `chunk` on. The chunks must lie in one
  /// block or be whole slices of adjacent blocks.
  std::size_t bytes(int chunk, int count) const;
  /// Return the first byte of a chunk in the caller's buffers.
  const std::byte* in(int chunk) const;
  std::byte* out(int chunk) const;

  /// Returns how many of `count` adjacent chunks travel as one message, because they are contiguous
  /// in the vector. The number is the same on all ranks and does not depend on their buffers.
  int run(int count) const;

  /// Bytes of the longest chunk.
  std::size_t longest() const;
  std::size_t element() const { return element_; }

 private:
  std::uint64_t offset(int chunk) const;   // in elements, from the start of the vector
  std::uint64_t boundary(int part) const;  // in elements, from the start of the slice in a block

  const std::byte* in_;
  std::byte* out_;
  std::uint64_t in_origin_ = 0;  // the element of the vector that in_ points to
  std::uint64_t out_origin_ = 0;
  std::size_t element_;
  std::uint64_t block_;
  std::uint64_t first_;
  std::uint64_t length_;
  int parts_;  // chunks of one block
  bool one_block_;
  bool merge_chunks_;  // chunks of one block may travel together
  bool merge_blocks_;  // a slice is a whole block, so its parts are contiguous
};

/// Number of blocks of the operation's vector for this many ranks.
int blocks_of(Op op, int size);

}  // namespace hccl::exec
