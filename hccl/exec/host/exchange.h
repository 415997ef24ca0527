// A collective as the ranks of one host see it: who gives what to whom. Every rank takes, from each
// rank that gives, the block that is meant for it, and either folds these blocks in rank order or
// lays them side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hccl/exec/call.h"

namespace hccl::exec::host {

class Exchange {
 public:
  /// `rank` of `size` ranks, all of this host.
  Exchange(const Call& call, int rank, int size)
      : call_(call), rank_(rank), size_(size), root_(call.root), longest_(call.count) {
    using schedule::Op;
    switch (call.op) {
      case Op::kAllReduce:
        folds_ = true;
        break;
      case Op::kReduce:
        folds_ = to_root_ = true;
        break;
      case Op::kReduceScatter:
      case Op::kReduceScatterV:
        folds_ = block_for_each_ = true;
        break;
      case Op::kBroadcast:
        from_root_ = true;
        break;
      case Op::kScatter:
        from_root_ = block_for_each_ = true;
        break;
      case Op::kAllToAll:
      case Op::kAllToAllV:
        block_for_each_ = true;
        break;
      case Op::kAllGather:
      case Op::kAllGatherV:
      case Op::kBarrier:
        break;
    }
    for (const Block& block : call.in_blocks) longest_ = std::max(longest_, block.count);
    for (const Block& block : call.out_blocks) longest_ = std::max(longest_, block.count);
  }

  bool folds() const { return folds_; }
  bool gives(int rank) const {
    return call_.op != schedule::Op::kBarrier && (!from_root_ || rank == root_);
  }
  bool takes(int rank) const {
    return call_.op != schedule::Op::kBarrier && (!to_root_ || rank == root_);
  }
  bool from_root() const { return from_root_; }
  /// The input has a block for each rank; otherwise one for all of them.
  bool block_for_each() const { return block_for_each_; }

  /// Where in this rank's input the block for `rank` lies.
  Block in(int rank) const {
    if (!call_.in_blocks.empty()) return call_.in_blocks[static_cast<std::size_t>(rank)];
    return {block_for_each_ ? static_cast<std::uint64_t>(rank) * call_.count : 0, call_.count};
  }
  /// Where in the input of rank `giver` the block for this rank lies. Not for alltoallv, where only
  /// the giver knows.
  Block in_of(int giver) const;
  /// Where in this rank's output the block of `rank` lies.
  Block out(int rank) const;
  /// Elements of the longest block that this rank gives or takes.
  std::uint64_t longest() const { return longest_; }
  /// Elements of this rank's whole input, without gaps.
  std::uint64_t input() const;

 private:
  const Call& call_;
  int rank_;
  int size_;
  int root_;
  bool folds_ = false;
  bool from_root_ = false;
  bool to_root_ = false;
  bool block_for_each_ = false;
  std::uint64_t longest_ = 0;
};

}  // namespace hccl::exec::host
