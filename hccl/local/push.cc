// push: buffers lie in memory that all ranks reach, and each rank stores its data directly into the
// outputs of its peers. In an allreduce each rank folds its slice of all inputs and stores the
// result into every output. So a line of an input crosses between cores once, and a result stays in
// the cache of its writer until a rank reads it.
#include <algorithm>

#include "hccl/local/entries.h"
#include "hccl/local/take.h"

namespace hccl::local {

std::string refuse_push(const Case& c, const Topology&) {
  return c.inputs_reachable && c.outputs_reachable
             ? ""
             : "a buffer is in memory that other ranks cannot reach";
}

Status run_push_blocks(Region& region, const Operation& op) {
  HCCL_RETURN_IF_ERROR(
      give(region, op, [&](int peer, std::size_t at, const std::byte* from, std::size_t bytes) {
        kernels::copy(from, op.peers[static_cast<std::size_t>(peer)].out + at, bytes, op.store);
        return Status();
      }));
  return region.barrier();
}

// The root shares the work: it stores its slice into every output, and its peers copy the rest.
Status run_push_broadcast(Region& region, const Operation& op) {
  const Block pushed = op.slice(op.call.root, op.call.count);
  const std::size_t begin = pushed.at * op.element;
  const std::size_t end = begin + pushed.count * op.element;
  const std::byte* const in = op.peers[static_cast<std::size_t>(op.call.root)].in;
  const auto copy = [&](std::byte* out, std::size_t from, std::size_t to) {
    kernels::copy(in + from, out + from, to - from, op.store);
  };
  if (region.local_rank() == op.call.root) {
    for (const PeerBuffers& peer : op.peers) copy(peer.out, begin, end);
    if (op.out() == in) return region.barrier();
  }
  copy(op.out(), 0, begin);
  copy(op.out(), end, op.call.count * op.element);
  return region.barrier();
}

Status run_push_reduce(Region& region, const Operation& op) {
  const Block mine = op.slice(region.local_rank(), op.call.count);
  const std::size_t at = mine.at * op.element;
  for (std::size_t p = 0; p < op.peers.size(); ++p) op.inputs[p] = op.peers[p].in + at;
  const PeerBuffers& root = op.peers[static_cast<std::size_t>(op.call.root)];
  op.fold(op.inputs, root.out + at, mine.count, op.store_to(root.out, root.in));
  return region.barrier();
}

// Works in pieces that stay in the first-level cache between the fold and the stores.
Status run_push_allreduce(Region& region, const Operation& op) {
  constexpr std::size_t kPiece = 8192;
  const auto own = static_cast<std::size_t>(region.local_rank());
  const Block mine = op.slice(region.local_rank(), op.call.count);
  const std::uint64_t length = kPiece / op.element;
  for (std::uint64_t first = 0; first < mine.count; first += length) {
    const std::uint64_t count = std::min(length, mine.count - first);
    const std::size_t at = (mine.at + first) * op.element;
    for (std::size_t p = 0; p < op.peers.size(); ++p) op.inputs[p] = op.peers[p].in + at;
    op.fold(op.inputs, op.out() + at, count);
    for (std::size_t p = 0; p < op.peers.size(); ++p) {
      if (p == own) continue;
      kernels::copy(op.out() + at, op.peers[p].out + at, count * op.element,
                    kernels::Store::kCached);
    }
  }
  return region.barrier();
}

}  // namespace hccl::local
