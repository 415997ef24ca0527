#include "hccl/exec/chunk_layout.h"

#include <algorithm>

namespace hccl::exec {

int blocks_of(Op op, int size) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kReduce:
    case Op::kBroadcast:
      return 1;
    case Op::kReduceScatter:
    case Op::kAllGather:
    case Op::kScatter:
    case Op::kAllToAll:
      return size;
    case Op::kBarrier:
    case Op::kReduceScatterV:
    case Op::kAllGatherV:
    case Op::kAllToAllV:
      break;
  }
  return 1;
}

ChunkLayout::ChunkLayout(const Call& call, int rank, int size, int chunks, bool slots,
                         std::uint64_t first, std::uint64_t length)
    : in_(static_cast<const std::byte*>(call.in)),
      out_(static_cast<std::byte*>(call.out)),
      element_(size_of(call.type)),
      block_(call.count),
      first_(first),
      length_(length),
      parts_(std::max(1, chunks / blocks_of(call.op, size))),
      one_block_(blocks_of(call.op, size) == 1),
      // Every slot is as long as the longest chunk, so shorter chunks in adjacent slots are not
      // contiguous.
      merge_chunks_(one_block_ && (!slots || length % static_cast<std::uint64_t>(parts_) == 0)),
      merge_blocks_(first == 0 && length == call.count && parts_ == 1) {
  const auto own = static_cast<std::uint64_t>(rank) * block_;
  if (call.op == Op::kAllGather) in_origin_ = own;
  if (call.op == Op::kReduceScatter || call.op == Op::kScatter) out_origin_ = own;
}

std::uint64_t ChunkLayout::boundary(int part) const {
  // length * part overflows 64 bits only beyond 2^57 elements; counts are limited to far less.
  return length_ * static_cast<std::uint64_t>(part) / static_cast<std::uint64_t>(parts_);
}

std::uint64_t ChunkLayout::offset(int chunk) const {
  return static_cast<std::uint64_t>(chunk / parts_) * block_ + first_ + boundary(chunk % parts_);
}

std::size_t ChunkLayout::bytes(int chunk, int count) const {
  std::uint64_t elements = 0;
  if (one_block_) {
    elements = boundary(chunk + count) - boundary(chunk);
  } else {
    for (int c = chunk; c < chunk + count; ++c) {
      elements += boundary(c % parts_ + 1) - boundary(c % parts_);
    }
  }
  return elements * element_;
}

const std::byte* ChunkLayout::in(int chunk) const {
  return in_ + (offset(chunk) - in_origin_) * element_;
}

std::byte* ChunkLayout::out(int chunk) const {
  return out_ + (offset(chunk) - out_origin_) * element_;
}

int ChunkLayout::run(int count) const {
  if (merge_chunks_ || merge_blocks_) return count;
  return 1;
}

std::size_t ChunkLayout::longest() const {
  std::uint64_t most = 0;
  for (int part = 0; part < parts_; ++part)
    most = std::max(most, boundary(part + 1) - boundary(part));
  return most * element_;
}

}  // namespace hccl::exec
