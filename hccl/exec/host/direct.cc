// The ways that go straight from buffer to buffer: pull and push.
#include <algorithm>

#include "hccl/base/pages.h"
#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {

std::byte* HostPath::peer_bytes(int place, std::uint64_t address, std::uint64_t heap_at,
                                std::uint64_t bytes) {
  const auto& peer = memory_.peers[static_cast<std::size_t>(place)];
  if (peer.same_process) {
    // A thread of this process said so. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(address);
  }
  // Page faults of a first touch, all at once rather than one by one.
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  auto& touched = touched_[static_cast<std::size_t>(place)];
  if (touched.empty()) touched.resize(peer.heap_bytes / kBlock + 1);
  const std::size_t end = (heap_at + bytes + kBlock - 1) / kBlock;
  for (std::size_t block = heap_at / kBlock; block < end; ++block) {
    if (touched[block]) continue;
    const std::size_t first = block;
    while (block < end && !touched[block]) touched[block++] = true;
    fault_in(peer.heap + first * kBlock,
             std::min(block * kBlock, peer.heap_bytes) - first * kBlock);
  }
  return peer.heap + heap_at;
}

void HostPath::resolve(const Run& run) {
  for (int place = 0; place < size_; ++place) {
    const Notice notice = notice_of(place);
    const auto at = static_cast<std::size_t>(place);
    if (run.exchange.gives(place)) {
      ins_[at] = peer_bytes(place, notice.in, notice.in_heap, notice.in_bytes);
    }
    if (run.exchange.takes(place) && reachable(place, notice.out_heap, notice.out_bytes)) {
      outs_[at] = peer_bytes(place, notice.out, notice.out_heap, notice.out_bytes);
    }
  }
}

// ---- straight from buffer to buffer ----

Status HostPath::pull(const Run& run) {
  take(run, 0, run.exchange.longest(), [&](int giver) {
    const std::uint64_t at = run.call.op == Op::kAllToAllV ? area_.gives(giver)[place_].at
                                                                     : run.exchange.in_of(giver).at;
    return ins_[static_cast<std::size_t>(giver)] + at * run.element;
  });
  return gate(run);
}

Status HostPath::push_blocks(const Run& run) {
  HCCL_RETURN_IF_ERROR(
      give_blocks(run, [&](int place, std::size_t at, const std::byte* from, std::size_t bytes) {
        kernels::copy(from, outs_[static_cast<std::size_t>(place)] + at, bytes, run.store);
        return Status();
      }));
  return gate(run);
}

Status HostPath::reduce_slices(const Run& run) {
  const Block slice = run.slice(place_, run.call.count);
  const std::size_t at = slice.at * run.element;
  for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + at;
  const auto root = static_cast<std::size_t>(run.call.root);
  kernels::fold(run.call.type, run.call.reduce, inputs_, outs_[root] + at, slice.count,
                run.store_in(outs_[root], ins_[root]));
  return gate(run);
}

// The root has a core, too: it stores its slice into every output, and the others copy the rest.
Status HostPath::broadcast_slices(const Run& run) {
  const Block pushed = run.slice(run.call.root, run.call.count);
  const std::size_t begin = pushed.at * run.element;
  const std::size_t end = begin + pushed.count * run.element;
  const std::size_t bytes = run.call.count * run.element;
  const std::byte* const in = ins_[static_cast<std::size_t>(run.call.root)];
  const auto copy = [&](std::byte* out, std::size_t from, std::size_t to) {
    kernels::copy(in + from, out + from, to - from, run.store);
  };
  auto* const mine = static_cast<std::byte*>(run.call.out);
  if (place_ == run.call.root) {
    for (std::byte* const out : outs_) copy(out, begin, end);
    if (mine == in) return gate(run);
  }
  copy(mine, 0, begin);
  copy(mine, end, bytes);
  return gate(run);
}

Status HostPath::pull_slices(const Run& run) {
  const Block mine = run.slice(place_, run.call.count);
  auto* const out = static_cast<std::byte*>(run.call.out);
  for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + mine.at * run.element;
  kernels::fold(run.call.type, run.call.reduce, inputs_, out + mine.at * run.element, mine.count);
  HCCL_RETURN_IF_ERROR(gate(run));
  for (int i = 1; i < size_; ++i) {
    const int place = (place_ + i) % size_;
    const Block slice = run.slice(place, run.call.count);
    const std::size_t at = slice.at * run.element;
    // In place, the others have just read what is overwritten here.
    kernels::copy(outs_[static_cast<std::size_t>(place)] + at, out + at, slice.count * run.element,
                  run.store_in(out, static_cast<const std::byte*>(run.call.in)));
  }
  return gate(run);
}

Status HostPath::push_slices(const Run& run) {
  // In pieces that stay in the first-level cache between the fold and the stores.
  constexpr std::size_t kPiece = 8192;
  const Block mine = run.slice(place_, run.call.count);
  const std::uint64_t length = kPiece / run.element;
  const auto own = static_cast<std::size_t>(place_);
  for (std::uint64_t first = 0; first < mine.count; first += length) {
    const std::uint64_t count = std::min(length, mine.count - first);
    const std::size_t at = (mine.at + first) * run.element;
    for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + at;
    kernels::fold(run.call.type, run.call.reduce, inputs_, outs_[own] + at, count);
    for (std::size_t p = 0; p < outs_.size(); ++p) {
      if (p == own) continue;
      kernels::copy(outs_[own] + at, outs_[p] + at, count * run.element, kernels::Store::kCached);
    }
  }
  return gate(run);
}

}  // namespace hccl::exec::host
