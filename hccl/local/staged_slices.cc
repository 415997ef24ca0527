// staged_slices: an allreduce in two hops, for three and more ranks. Each rank copies a chunk of
// its input into its staging buffer, folds its slice of the chunks of all ranks there, and copies
// all slices to its output. Three chunks are under way: step s fills chunk s, folds chunk s - 1 and
// copies chunk s - 2.
#include "hccl/local/entries.h"
#include "hccl/local/pipeline.h"

namespace hccl::local {
namespace {

// In this rank's chunk, no peer reads this rank's slice, so the result overwrites that slice.
void fold_slice(const Region& region, const Operation& op, const Pipeline& pipe,
                std::uint64_t chunk) {
  const std::uint64_t count = std::min(pipe.length, op.call.count - chunk * pipe.length);
  const Block mine = op.slice(region.local_rank(), count);
  const std::size_t at = mine.at * op.element;
  for (int peer = 0; peer < op.size; ++peer) {
    op.inputs[static_cast<std::size_t>(peer)] = pipe.at(region, peer, chunk) + at;
  }
  op.fold(op.inputs, pipe.at(region, region.local_rank(), chunk) + at, mine.count,
          op.staged_store(mine.count * op.element));
}

void copy_slices(const Region& region, const Operation& op, const Pipeline& pipe,
                 std::uint64_t chunk) {
  const std::uint64_t first = chunk * pipe.length;
  const std::uint64_t count = std::min(pipe.length, op.call.count - first);
  for (int peer = 0; peer < op.size; ++peer) {
    const Block part = op.slice(peer, count);
    kernels::copy(pipe.at(region, peer, chunk) + part.at * op.element,
                  op.out() + (first + part.at) * op.element, part.count * op.element,
                  op.store_to(op.out(), op.in()));
  }
}

}  // namespace

std::string refuse_staged_slices(const Case&, const Topology& topology) {
  return topology.ranks > 2 ? "" : "it gains nothing with two ranks";
}

Status run_staged_slices(Region& region, const Operation& op) {
  const Pipeline pipe(region, op, 1);
  for (std::uint64_t step = 0; step < pipe.chunks + 2; ++step) {
    if (step < pipe.chunks) {
      HCCL_RETURN_IF_ERROR(pipe.await_room(region, step));
      const std::uint64_t first = step * pipe.length;
      const std::size_t bytes = std::min(pipe.length, op.call.count - first) * op.element;
      kernels::copy(op.in() + first * op.element, pipe.at(region, region.local_rank(), step), bytes,
                    op.staged_store(bytes));
      region.done(Progress::kStaged, step);
    }
    if (step >= 1 && step - 1 < pipe.chunks) {
      HCCL_RETURN_IF_ERROR(region.await_all(Progress::kStaged, step - 1));
      fold_slice(region, op, pipe, step - 1);
      region.done(Progress::kFolded, step - 1);
    }
    if (step < 2) continue;
    HCCL_RETURN_IF_ERROR(region.await_all(Progress::kFolded, step - 2));
    copy_slices(region, op, pipe, step - 2);
    region.done(Progress::kTaken, step - 2);
  }
  region.staging().end_chunks(pipe.chunks);
  return {};
}

}  // namespace hccl::local
