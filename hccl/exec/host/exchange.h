// A collective as the ranks of one host see it: who gives what to whom. Every rank takes, from each
// rank that gives, the block that is meant for it, and either folds these blocks in rank order or
// lays them side by side.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "hccl/base/call.h"

namespace hccl::exec::host {

class Exchange {
 public:
  /// `rank` of `size` ranks, all of this host.
  Exchange(const Call& call, int rank, int size)
      : call_(call),
        kind_(kind(call.op)),
        rank_(rank),
        size_(size),
        root_(call.root),
        longest_(call.count) {
    for (const Block& block : call.in_blocks) longest_ = std::max(longest_, block.count);
    for (const Block& block : call.out_blocks) longest_ = std::max(longest_, block.count);
  }

  bool folds() const { return kind_.folds; }
  bool gives(int rank) const {
    return call_.op != Op::kBarrier && (!kind_.from_root || rank == root_);
  }
  bool takes(int rank) const {
    return call_.op != Op::kBarrier && (!kind_.to_root || rank == root_);
  }
  bool from_root() const { return kind_.from_root; }
  /// The input has a block for each rank; otherwise one for all of them.
  bool block_for_each() const { return kind_.block_for_each; }

  /// Where in this rank's input the block for `rank` lies.
  Block in(int rank) const {
    if (!call_.in_blocks.empty()) return call_.in_blocks[static_cast<std::size_t>(rank)];
    return {kind_.block_for_each ? static_cast<std::uint64_t>(rank) * call_.count : 0, call_.count};
  }
  /// Where in the input of rank `giver` the block for this rank lies. Not for alltoallv, where only
  /// the giver knows.
  Block in_of(int giver) const;
  /// Where in this rank's output the block of `rank` lies.
  Block out(int rank) const;
  /// Elements of the longest block that this rank gives or takes.
  std::uint64_t longest() const { return longest_; }
  /// Elements of this rank's whole input, without gaps.
  std::uint64_t input() const {
    if (call_.op == Op::kBarrier) return 0;
    if (!kind_.block_for_each) return call_.count;
    std::uint64_t sum = 0;
    for (int rank = 0; rank < size_; ++rank) sum += in(rank).count;
    return sum;
  }

 private:
  struct Kind {
    bool folds = false;
    bool from_root = false;
    bool to_root = false;
    bool block_for_each = false;
  };
  // One load for each operation.
  static Kind kind(Op op) {
    static constexpr auto kKinds = [] {
      std::array<Kind, static_cast<std::size_t>(Op::kAllToAllV) + 1> kinds{};
      const auto of = [&](Op which) -> Kind& { return kinds[static_cast<std::size_t>(which)]; };
      for (const Op each : {Op::kAllReduce, Op::kReduce, Op::kReduceScatter, Op::kReduceScatterV}) {
        of(each).folds = true;
      }
      for (const Op each : {Op::kBroadcast, Op::kScatter}) of(each).from_root = true;
      of(Op::kReduce).to_root = true;
      for (const Op each :
           {Op::kReduceScatter, Op::kReduceScatterV, Op::kScatter, Op::kAllToAll, Op::kAllToAllV}) {
        of(each).block_for_each = true;
      }
      return kinds;
    }();
    return kKinds[static_cast<std::size_t>(op)];
  }

  const Call& call_;
  Kind kind_;
  int rank_;
  int size_;
  int root_;
  std::uint64_t longest_ = 0;
};

}  // namespace hccl::exec::host
