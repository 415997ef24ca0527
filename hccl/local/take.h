// What most algorithms do in the end: a rank takes, from each rank that gives, the block that is
// meant for it.
#pragma once

#include <algorithm>

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Takes elements [first, first + length) of every block that is for this rank, and folds them or
/// lays them side by side. at(giver): where element `first` of the giver's block lies; this rank's
/// own block is taken from its input.
template <class At>
void take(const Region& region, const Operation& op, std::uint64_t first, std::uint64_t length,
          At&& at) {
  const Blocks& blocks = op.blocks;
  const int place = region.place();
  if (!blocks.takes(place)) return;
  const Block mine = blocks.in(place);
  // Only a giver has an input.
  const auto own = [&] { return op.in() + (mine.at + first) * op.element; };
  if (blocks.folds()) {
    if (first >= mine.count) return;
    for (int giver = 0; giver < op.size; ++giver) {
      op.inputs[static_cast<std::size_t>(giver)] = giver == place ? own() : at(giver);
    }
    std::byte* const to = op.out() + first * op.element;
    op.fold(op.inputs, to, std::min(length, mine.count - first), op.store_to(to, own()));
    return;
  }
  for (int giver = 0; giver < op.size; ++giver) {
    const Block block = blocks.out(giver);
    if (!blocks.gives(giver) || first >= block.count) continue;
    kernels::copy(giver == place ? own() : at(giver), op.out() + (block.at + first) * op.element,
                  std::min(length, block.count - first) * op.element, op.store);
  }
}

/// Of operations in which every rank gives blocks and none folds: calls put(place, at, from, bytes)
/// for the block of each peer, which belongs `at` bytes into the peer's output; copies this rank's
/// own block.
template <class Put>
Status give(Region& region, const Operation& op, Put&& put) {
  const int place = region.place();
  const Block own = op.blocks.in(place);
  kernels::copy(op.in() + own.at * op.element, op.out() + op.blocks.out(place).at * op.element,
                own.count * op.element, op.store_to(op.out(), op.in()));
  for (int i = 1; i < op.size; ++i) {
    const int peer = (place + i) % op.size;
    const Block block = op.blocks.in(peer);
    const std::uint64_t at =
        op.call.op == Op::kAllToAllV ? region.receives(peer)[place].at : op.blocks.out(place).at;
    HCCL_RETURN_IF_ERROR(
        put(peer, at * op.element, op.in() + block.at * op.element, block.count * op.element));
  }
  return {};
}

}  // namespace hccl::local
