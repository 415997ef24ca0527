// The blocks of an operation. Every rank takes its block from each rank that gives one, and either
// folds these blocks in rank order or stores them side by side.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "hccl/base/cache_hints.h"
#include "hccl/base/call.h"

namespace hccl::local {

/// The blocks of a collective for one rank of a host. `call` must outlive this object. All rank
/// numbers are local ranks.
class Blocks {
 public:
  Blocks(const Call& call, int rank, int size)
      : call_(call), traits_(traits_of(call.op)), rank_(rank), size_(size) {}

  bool folds() const { return traits_.folds; }
  bool gives(int rank) const {
    return call_.op != Op::kBarrier && (!traits_.from_root || rank == call_.root);
  }
  bool takes(int rank) const {
    return call_.op != Op::kBarrier && (!traits_.to_root || rank == call_.root);
  }
  bool from_root() const { return traits_.from_root; }
  /// Whether the input has a block for each rank; otherwise all ranks take the same block.
  bool block_for_each() const { return traits_.block_for_each; }

  /// The block for `rank` in this rank's input, in elements.
  Block in(int rank) const {
    if (!call_.in_blocks.empty()) return call_.in_blocks[static_cast<std::size_t>(rank)];
    return {traits_.block_for_each ? static_cast<std::uint64_t>(rank) * call_.count : 0,
            call_.count};
  }
  /// The block for this rank in the input of `giver`. Not for alltoallv, where only the giver knows
  /// the block.
  Block in_of(int giver) const;
  /// The block of `rank` in this rank's output.
  Block out(int rank) const {
    if (!call_.out_blocks.empty()) return call_.out_blocks[static_cast<std::size_t>(rank)];
    const bool side_by_side = call_.op == Op::kAllGather || call_.op == Op::kAllToAll;
    return {side_by_side ? static_cast<std::uint64_t>(rank) * call_.count : 0, call_.count};
  }

  /// Elements in this rank's input, not counting gaps between blocks.
  std::uint64_t input() const;
  /// Elements from the start of this rank's input to the end of its last block.
  std::uint64_t input_extent() const;
  /// Elements from the start of this rank's output to the end of its last block.
  std::uint64_t output_extent() const;
  /// Elements of the longest block that this rank gives or takes.
  std::uint64_t longest() const;

 private:
  struct Traits {
    bool folds = false;
    bool from_root = false;
    bool to_root = false;
    bool block_for_each = false;
  };
  // A table, because every operation looks this up.
  static Traits traits_of(Op op) {
    static constexpr auto kTraits = [] {
      std::array<Traits, static_cast<std::size_t>(Op::kAllToAllV) + 1> traits{};
      const auto of = [&](Op which) -> Traits& { return traits[static_cast<std::size_t>(which)]; };
      for (const Op each : {Op::kAllReduce, Op::kReduce, Op::kReduceScatter, Op::kReduceScatterV}) {
        of(each).folds = true;
      }
      for (const Op each : {Op::kBroadcast, Op::kScatter}) of(each).from_root = true;
      of(Op::kReduce).to_root = true;
      for (const Op each :
           {Op::kReduceScatter, Op::kReduceScatterV, Op::kScatter, Op::kAllToAll, Op::kAllToAllV}) {
        of(each).block_for_each = true;
      }
      return traits;
    }();
    return kTraits[static_cast<std::size_t>(op)];
  }

  const Call& call_;
  Traits traits_;
  int rank_;
  int size_;
};

/// The part of `count` elements that rank `of` folds if `size` ranks share the work. Parts begin at
/// multiples of a cache line.
inline Block slice(int of, int size, std::uint64_t count, std::size_t element) {
  const std::uint64_t line = std::max<std::uint64_t>(1, kCacheLine / element);
  const auto ranks = static_cast<std::uint64_t>(size);
  const auto boundary = [&](std::uint64_t part) {
    return part == ranks ? count : count / line * part / ranks * line;
  };
  const auto part = static_cast<std::uint64_t>(of);
  return {boundary(part), boundary(part + 1) - boundary(part)};
}

}  // namespace hccl::local
