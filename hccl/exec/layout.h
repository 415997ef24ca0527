// Where the chunks of one slice of a collective lie in memory.
//
// A collective's vector is `blocks` blocks of `block` elements (one block for allreduce, reduce and
// broadcast; one a rank for the others). The operation runs in slices: a slice takes elements
// [first, first + length) of every block, and a schedule cuts each of those into chunks / blocks
// chunks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hccl/base/call.h"
#include "hccl/schedule/schedule.h"

namespace hccl::exec {

class Layout {
 public:
  /// chunks: of the schedule, a multiple of blocks (0 for a barrier). slots: whether any rank's
  /// schedule holds chunks in scratch slots.
  Layout(const Call& call, int rank, int size, int chunks, bool slots, std::uint64_t first,
         std::uint64_t length);

  /// Bytes of a run of chunks of the vector; the chunks must lie in one block or be whole slices of
  /// adjacent ones.
  std::size_t bytes(int chunk, int count) const;
  /// The first byte of a chunk in the caller's buffers.
  const std::byte* in(int chunk) const;
  std::byte* out(int chunk) const;

  /// How many of `count` adjacent chunks are contiguous in the vector and therefore travel as one
  /// message. The same on all ranks, whatever their buffers.
  int run(int count) const;

  /// Bytes of the longest chunk.
  std::size_t longest() const;
  std::size_t element() const { return element_; }

 private:
  std::uint64_t offset(int chunk) const;   // elements from the vector's start
  std::uint64_t boundary(int part) const;  // elements from the slice's start in a block

  const std::byte* in_;
  std::byte* out_;
  std::uint64_t in_origin_ = 0;  // element of the vector that in_ points to
  std::uint64_t out_origin_ = 0;
  std::size_t element_;
  std::uint64_t block_;
  std::uint64_t first_;
  std::uint64_t length_;
  int parts_;  // chunks a block
  bool one_block_;
  bool merge_chunks_;  // chunks of one block may travel together
  bool merge_blocks_;  // a slice is the whole block, so blocks follow one another
};

/// Blocks of the operation's vector for this many ranks.
int blocks_of(Op op, int size);

}  // namespace hccl::exec
