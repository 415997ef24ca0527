// cma: buffers lie in private memory, and the kernel copies directly between them, at the price of
// a system call for each piece. A rank stores its data into the outputs of its peers. For a fold,
// the rank first fetches the inputs of its peers, piece by piece. A scatter only fetches.
#include <algorithm>

#include "hccl/local/entries.h"
#include "hccl/local/kernel_copy.h"
#include "hccl/local/take.h"

namespace hccl::local {
namespace {

// Bytes that a rank fetches from all peers together for one fold: few enough to stay in the
// second-level cache until the fold, and enough to be worth the system calls.
constexpr std::size_t kFolded = std::size_t{512} << 10;
static_assert(kFolded <= kFreeOfCopies);

const Descriptor& buffers(const Operation& op, int local_rank) {
  return op.peers[static_cast<std::size_t>(local_rank)].where;
}

// The root shares the work: it stores its slice into every output, and its peers fetch the rest.
Status broadcast(Region& region, const Operation& op) {
  const int root = op.call.root;
  const Block pushed = op.slice(root, op.call.count);
  const std::size_t begin = pushed.at * op.element;
  const std::size_t end = begin + pushed.count * op.element;
  const std::size_t bytes = op.call.count * op.element;
  if (region.local_rank() != root) {
    const std::uint64_t from = buffers(op, root).in;
    HCCL_RETURN_IF_ERROR(fetch(region, op, root, from, op.out(), begin));
    return fetch(region, op, root, from + end, op.out() + end, bytes - end);
  }
  for (int i = 1; i < op.size; ++i) {
    const int peer = (region.local_rank() + i) % op.size;
    HCCL_RETURN_IF_ERROR(
        store(region, op, peer, buffers(op, peer).out + begin, op.in() + begin, end - begin));
  }
  if (op.in() != op.out()) kernels::copy(op.in(), op.out(), bytes, kernels::Store::kCached);
  return {};
}

// Each rank folds a slice (in a reduce-scatter its block) and stores the result into the outputs
// that need it. Slices are disjoint, so no rank overwrites data that another rank still has to
// read.
Status folds(Region& region, const Operation& op) {
  const Blocks& blocks = op.blocks;
  const int local_rank = region.local_rank();
  const bool whole = !blocks.block_for_each();
  const Block mine = whole ? op.slice(local_rank, op.call.count) : blocks.in(local_rank);
  const std::size_t room = kFolded / static_cast<std::size_t>(op.size) / kCacheLine * kCacheLine;
  const std::uint64_t length = std::max(room, kCacheLine) / op.element;
  const auto scratch = [&](int peer) {
    return region.staging().chunks(local_rank) +
           static_cast<std::size_t>(peer) * length * op.element;
  };
  for (std::uint64_t first = 0; first < mine.count; first += length) {
    const std::uint64_t count = std::min(length, mine.count - first);
    const std::size_t bytes = count * op.element;
    for (int i = 1; i < op.size; ++i) {
      const int peer = (local_rank + i) % op.size;
      const std::uint64_t there = (whole ? mine.at : blocks.in_of(peer).at) + first;
      op.inputs[static_cast<std::size_t>(peer)] = scratch(peer);
      HCCL_RETURN_IF_ERROR(
          fetch(region, op, peer, buffers(op, peer).in + there * op.element, scratch(peer), bytes));
    }
    op.inputs[static_cast<std::size_t>(local_rank)] = op.in() + (mine.at + first) * op.element;
    const std::size_t at = ((whole ? mine.at : 0) + first) * op.element;
    std::byte* const folded = blocks.takes(local_rank) ? op.out() + at : scratch(local_rank);
    op.fold(op.inputs, folded, count);
    for (int i = 1; i < op.size && whole; ++i) {
      const int peer = (local_rank + i) % op.size;
      if (!blocks.takes(peer)) continue;
      HCCL_RETURN_IF_ERROR(store(region, op, peer, buffers(op, peer).out + at, folded, bytes));
    }
  }
  return {};
}

}  // namespace

// Refuses a broadcast with shared cores: the root would store its slice into all outputs alone, on
// a shared core. With staging buffers its peers copy the data, on all cores.
std::string refuse_cma(const Case& c, const Topology& topology) {
  if (!topology.kernel_copies) return "the kernel may not copy between the memory of these ranks";
  if (c.op == Op::kBroadcast && topology.shared_cores) {
    return "the root shares its core with other ranks";
  }
  return "";
}

Status run_cma_moves(Region& region, const Operation& op) {
  return finish_copies(
      region,
      give(region, op, [&](int peer, std::size_t at, const std::byte* from, std::size_t bytes) {
        return store(region, op, peer, buffers(op, peer).out + at, from, bytes);
      }));
}

// Each rank fetches its own block. Otherwise the root would do all the work.
Status run_cma_fetch(Region& region, const Operation& op) {
  const int root = op.call.root;
  const Block own = op.blocks.in_of(root);
  const std::size_t at = own.at * op.element, bytes = own.count * op.element;
  Status copied;
  if (region.local_rank() == root) {
    kernels::copy(op.in() + at, op.out(), bytes, kernels::Store::kCached);
  } else {
    copied = fetch(region, op, root, buffers(op, root).in + at, op.out(), bytes);
  }
  return finish_copies(region, std::move(copied));
}

Status run_cma_broadcast(Region& region, const Operation& op) {
  return finish_copies(region, broadcast(region, op));
}

Status run_cma_folds(Region& region, const Operation& op) {
  return finish_copies(region, folds(region, op));
}

}  // namespace hccl::local
