#include "hccl/exec/host/exchange.h"

namespace hccl::exec::host {


Block Exchange::in_of(int giver) const {
  // An allgather's ranks may give blocks of different lengths; each begins its input.
  if (call_.op == Op::kAllGatherV) return {0, out(giver).count};
  return in(kind_.block_for_each ? rank_ : giver);
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

}  // namespace hccl::exec::host
