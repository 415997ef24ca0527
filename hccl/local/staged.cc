// staged: inputs in any memory pass through the staging buffers, in chunks that stay in the cache.
// In step s, each rank copies chunk s of its input into its own buffer, and takes its data of chunk
// s - 1 from all buffers.
#include "hccl/local/entries.h"
#include "hccl/local/pipeline.h"
#include "hccl/local/take.h"

namespace hccl::local {
namespace {

// Copies one chunk of this rank's blocks into the memory at `slot`. The chunk has one part for each
// taking rank, `stride` bytes apart, or one part for all ranks.
void fill(const Region& region, const Operation& op, std::byte* slot, std::uint64_t first,
          std::uint64_t length, std::size_t stride) {
  const Blocks& blocks = op.blocks;
  if (!blocks.gives(region.local_rank())) return;
  const int takers = blocks.block_for_each() ? op.size : 1;
  for (int taker = 0; taker < takers; ++taker) {
    if (blocks.block_for_each() && taker == region.local_rank()) continue;
    const Block block = blocks.in(taker);
    if (first >= block.count) continue;
    const std::size_t bytes = std::min(length, block.count - first) * op.element;
    kernels::copy(op.in() + (block.at + first) * op.element,
                  slot + stride * static_cast<std::size_t>(taker), bytes, op.staged_store(bytes));
  }
}

}  // namespace

std::string refuse_none(const Case&, const Topology&) { return ""; }

Status run_staged(Region& region, const Operation& op) {
  const bool for_each = op.blocks.block_for_each();
  const Pipeline pipe(region, op, for_each ? op.size : 1);
  // Without any data a barrier is still needed, because the next operation reuses the block tables.
  if (pipe.chunks == 0) return region.barrier();
  for (std::uint64_t step = 0; step <= pipe.chunks; ++step) {
    if (step < pipe.chunks) {
      HCCL_RETURN_IF_ERROR(pipe.await_room(region, step));
      fill(region, op, pipe.at(region, region.local_rank(), step), step * pipe.length, pipe.length,
           pipe.stride);
      region.done(Progress::kStaged, step);
    }
    if (step == 0) continue;
    const std::uint64_t chunk = step - 1;
    HCCL_RETURN_IF_ERROR(region.await_all(Progress::kStaged, chunk));
    const std::size_t mine =
        for_each ? pipe.stride * static_cast<std::size_t>(region.local_rank()) : 0;
    take(region, op, chunk * pipe.length, pipe.length,
         [&](int giver) { return pipe.at(region, giver, chunk) + mine; });
    region.done(Progress::kTaken, chunk);
  }
  region.staging().end_chunks(pipe.chunks);
  return {};
}

}  // namespace hccl::local
