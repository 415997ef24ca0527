#include "hccl/exec/host/exchange.h"

namespace hccl::exec::host {

using schedule::Op;

Exchange::Exchange(const Call& call, int rank, int size)
    : call_(call), rank_(rank), size_(size), root_(call.root), longest_(call.count) {
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

Block Exchange::in(int rank) const {
  if (!call_.in_blocks.empty()) return call_.in_blocks[static_cast<std::size_t>(rank)];
  return {block_for_each_ ? static_cast<std::uint64_t>(rank) * call_.count : 0, call_.count};
}

Block Exchange::in_of(int giver) const {
  // An allgather's ranks may give blocks of different lengths; each begins its input.
  if (call_.op == Op::kAllGatherV) return {0, out(giver).count};
  return in(block_for_each_ ? rank_ : giver);
}

Block Exchange::out(int rank) const {
  if (!call_.out_blocks.empty()) return call_.out_blocks[static_cast<std::size_t>(rank)];
  switch (call_.op) {
    case Op::kAllGather:
    case Op::kAllToAll:
      return {static_cast<std::uint64_t>(rank) * call_.count, call_.count};
    default:
      return {0, call_.count};
  }
}

std::uint64_t Exchange::input() const {
  if (call_.op == Op::kBarrier) return 0;
  if (!block_for_each_) return call_.count;
  std::uint64_t sum = 0;
  for (int rank = 0; rank < size_; ++rank) sum += in(rank).count;
  return sum;
}

}  // namespace hccl::exec::host
