// The common end of most algorithms: a rank takes its block from each rank that gives one.
#pragma once

#include <algorithm>

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Takes elements [first, first + length) of every block for this rank, and folds them or stores
/// them side by side. at(giver) returns the address of element `first` of the giver's block. This
/// rank's own block comes from its input.
template <class At>
void take(const Region& region, const Operation& op, std::uint64_t first, std::uint64_t length,
          At&& at) {
  const Blocks& blocks = op.blocks;
  const int local_rank = region.local_rank();
  if (!blocks.takes(local_rank)) return;
  const Block mine = blocks.in(local_rank);
  // Call own() only if this rank gives a block; otherwise the rank has no input.
  const auto own = [&] { return op.in() + (mine.at + first) * op.element; };
  if (blocks.folds()) {
    if (first >= mine.count) return;
    for (int giver = 0; giver < op.size; ++giver) {
      op.inputs[static_cast<std::size_t>(giver)] = giver == local_rank ? own() : at(giver);
    }
    std::byte* const to = op.out() + first * op.element;
    op.fold(op.inputs, to, std::min(length, mine.count - first), op.store_to(to, own()));
    return;
  }
  for (int giver = 0; giver < op.size; ++giver) {
    const Block block = blocks.out(giver);
    if (!blocks.gives(giver) || first >= block.count) continue;
    kernels::copy(giver == local_rank ? own() : at(giver),
                  op.out() + (block.at + first) * op.element,
                  std::min(length, block.count - first) * op.element, op.store);
  }
}

/// For operations in which every rank gives blocks and no rank folds. Calls put(local_rank, at,
/// from, bytes) for the block of each peer; `at` is the offset of the block in the peer's output,
/// in bytes. Also copies this rank's own block.
template <class Put>
Status give(Region& region, const Operation& op, Put&& put) {
  const int local_rank = region.local_rank();
  const Block own = op.blocks.in(local_rank);
  kernels::copy(op.in() + own.at * op.element, op.out() + op.blocks.out(local_rank).at * op.element,
                own.count * op.element, op.store_to(op.out(), op.in()));
  for (int i = 1; i < op.size; ++i) {
    const int peer = (local_rank + i) % op.size;
    const Block block = op.blocks.in(peer);
    const std::uint64_t at = op.call.op == Op::kAllToAllV ? region.receives(peer)[local_rank].at
                                                          : op.blocks.out(local_rank).at;
    HCCL_RETURN_IF_ERROR(
        put(peer, at * op.element, op.in() + block.at * op.element, block.count * op.element));
  }
  return {};
}

}  // namespace hccl::local
