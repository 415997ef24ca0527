// pull: buffers lie in memory that all ranks reach, and each rank reads its data directly from
// these buffers. In an allreduce each rank folds its slice of all inputs into its own output. After
// a barrier it copies the other slices from the outputs of its peers.
#include "hccl/local/entries.h"
#include "hccl/local/take.h"

namespace hccl::local {

std::string refuse_pull(const Case& c, const Topology&) {
  return c.inputs_reachable ? "" : "an input is in memory that other ranks cannot reach";
}

Status run_pull(Region& region, const Operation& op) {
  take(region, op, 0, op.blocks.longest(), [&](int giver) {
    const std::uint64_t at = op.call.op == Op::kAllToAllV
                                 ? region.sends(giver)[region.local_rank()].at
                                 : op.blocks.in_of(giver).at;
    return op.peers[static_cast<std::size_t>(giver)].in + at * op.element;
  });
  return region.barrier();
}

Status run_pull_allreduce(Region& region, const Operation& op) {
  const Block mine = op.slice(region.local_rank(), op.call.count);
  const std::size_t begin = mine.at * op.element;
  for (std::size_t p = 0; p < op.peers.size(); ++p) op.inputs[p] = op.peers[p].in + begin;
  op.fold(op.inputs, op.out() + begin, mine.count);
  HCCL_RETURN_IF_ERROR(region.barrier());
  for (int i = 1; i < op.size; ++i) {
    const int peer = (region.local_rank() + i) % op.size;
    const Block slice = op.slice(peer, op.call.count);
    const std::size_t at = slice.at * op.element;
    kernels::copy(op.peers[static_cast<std::size_t>(peer)].out + at, op.out() + at,
                  slice.count * op.element, op.store_to(op.out(), op.in()));
  }
  return region.barrier();
}

}  // namespace hccl::local
