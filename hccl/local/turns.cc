// turns: if ranks share cores, they run one after another anyway, so they fold one after another.
// Rank 0 copies a chunk of its input into its staging buffer. Each further rank in turn folds its
// own input into that chunk, which is still in the cache from the rank before. Then all ranks copy
// the result. Only the input of rank 0 is copied.
#include <array>

#include "hccl/local/entries.h"
#include "hccl/local/pipeline.h"

namespace hccl::local {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;

struct Turns {
  Region& region;
  const Operation& op;
  std::uint64_t length;
  std::uint64_t chunks;
  std::uint64_t window;

  std::byte* at(std::uint64_t chunk) const {
    return region.staging().chunks(0) +
           (region.staging().chunks_before() + chunk) % window * length * op.element;
  }
  Block part(std::uint64_t chunk) const {
    const std::uint64_t first = chunk * length;
    return {first, std::min(length, op.call.count - first)};
  }
  // While some rank has chunks to fold, only one rank is late: the first of the ranks that have
  // folded least, because all other ranks wait for that rank. When all chunks are folded, the ranks
  // that have not taken the results are late.
  bool late(int peer) const {
    int next = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (int local_rank = 0; local_rank < op.size; ++local_rank) {
      std::uint64_t folded = 0;
      while (folded < chunks && region.has_done(Progress::kStaged, local_rank, folded)) ++folded;
      if (folded < least) {
        least = folded;
        next = local_rank;
      }
    }
    return least < chunks ? peer == next : !region.has_done(Progress::kTaken, peer, chunks - 1);
  }
  Status await(Progress what, int local_rank, std::uint64_t chunk) const {
    return region.waits().until(
        local_rank, [&](int peer) { return region.has_done(what, peer, chunk); },
        [this](int peer) { return late(peer); });
  }

  void fold(std::uint64_t chunk) const {
    const Block block = part(chunk);
    const std::byte* const in = op.in() + block.at * op.element;
    if (region.local_rank() == 0) {
      kernels::copy(in, at(chunk), block.count * op.element, kernels::Store::kCached);
      return;
    }
    const std::array<const std::byte*, 2> inputs = {at(chunk), in};
    const bool last = region.local_rank() + 1 == op.size;
    (last ? op.fold : op.fold.partial())(inputs, at(chunk), block.count);
  }
  void copy_out(std::uint64_t chunk) const {
    const Block block = part(chunk);
    kernels::copy(at(chunk), op.out() + block.at * op.element, block.count * op.element,
                  op.store_to(op.out(), op.in()));
  }
};

}  // namespace

// Refuses types that other algorithms round once, at the end of the fold: turns would round them at
// each turn.
std::string refuse_turns(const Case& c, const Topology& topology) {
  if (!topology.shared_cores) return "it is for ranks that share cores, and each rank has a core";
  if (topology.ranks < 2) return "there is only one rank";
  return kernels::rounds_at_end(c.type) ? "it would round the type at each turn" : "";
}

Status run_turns(Region& region, const Operation& op) {
  const int local_rank = region.local_rank();
  const std::size_t half = (op.bytes / 2 + kCacheLine) / kCacheLine * kCacheLine;
  const std::uint64_t length =
      std::min(op.bytes <= 4 * kChunk ? half : kChunk, kChunk) / op.element;
  const Turns turns{region, op, length, (op.call.count + length - 1) / length,
                    Staging::kChunks / (length * op.element)};
  // This rank copies a chunk's result `lag` steps after it has folded the chunk. Meanwhile the
  // later ranks fold the chunk, and this rank folds the next chunks. The lag is less than the
  // window: otherwise rank 0 would wait for this rank to free memory while this rank waits for rank
  // 0.
  const std::uint64_t lag =
      local_rank + 1 == op.size
          ? 0
          : std::min<std::uint64_t>(static_cast<std::uint64_t>(op.size - local_rank),
                                    turns.window - 1);
  for (std::uint64_t step = 0; step < turns.chunks + lag; ++step) {
    if (step < turns.chunks) {
      if (local_rank != 0) {
        HCCL_RETURN_IF_ERROR(turns.await(Progress::kStaged, local_rank - 1, step));
      } else if (step >= turns.window) {
        for (int peer = 1; peer < op.size; ++peer) {
          HCCL_RETURN_IF_ERROR(turns.await(Progress::kTaken, peer, step - turns.window));
        }
      }
      turns.fold(step);
      region.done(Progress::kStaged, step);
    }
    if (step < lag) continue;
    const std::uint64_t chunk = step - lag;
    if (op.blocks.takes(local_rank)) {
      HCCL_RETURN_IF_ERROR(turns.await(Progress::kStaged, op.size - 1, chunk));
      turns.copy_out(chunk);
    }
    region.done(Progress::kTaken, chunk);
  }
  region.staging().end_chunks(turns.chunks);
  return {};
}

}  // namespace hccl::local
