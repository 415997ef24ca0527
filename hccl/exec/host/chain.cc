// The way in which ranks take turns: each folds its input into the same chunk of one ring.
#include <algorithm>
#include <array>

#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {

// The ring holds a chunk for each rank and one more, each of a length that is worth a turn.
static constexpr int kMostInChain = static_cast<int>(Area::kSlots / Ways::kLeastChunk) - 2;

// Turns are taken in rank order: the bits are those of a fold of all inputs at once. Of types that
// such a fold rounds only at its end they would not be.
bool HostPath::chains(const Run& run) const {
  using schedule::Op;
  return size_ > 1 && size_ <= kMostInChain && ways_.chain_from != 0 &&
         run.bytes >= std::max(ways_.chain_from, ways_.whole_most + 1) &&
         (run.call.op == Op::kAllReduce || run.call.op == Op::kReduce) &&
         !kernels::rounds_at_end(run.call.type);
}

// A chunk is still in the core's cache when the next of its ranks takes its turn.
std::size_t HostPath::chain_chunk(const Run& run) const {
  constexpr std::size_t kChunk = std::size_t{64} << 10;
  constexpr std::size_t kShort = 4 * kChunk;  // two chunks rather than many turns
  const std::size_t half = (run.bytes / 2 + kCacheLine) / kCacheLine * kCacheLine;
  const std::size_t most = Area::kSlots / static_cast<std::size_t>(size_ + 1);
  return std::min(run.bytes <= kShort ? half : kChunk, most / kCacheLine * kCacheLine);
}

// Chunks that this rank folds before it takes the first result: as many as are under way behind it,
// if every core that the chain comes to works at one.
std::uint64_t HostPath::chain_lag() const {
  const auto core = [&](int place) {
    return area_.words(place).core.load(std::memory_order_relaxed);
  };
  std::uint64_t lag = place_ + 1 < size_ ? 1 : 0;
  for (int place = place_; place + 1 < size_; ++place) {
    if (!watch_.policy.shared_cores || core(place) != core(place + 1)) ++lag;
  }
  return lag;
}

void HostPath::take_turn(const Run& run, std::byte* slot, std::uint64_t first,
                         std::uint64_t count) {
  const auto* const in = static_cast<const std::byte*>(run.call.in) + first * run.element;
  if (place_ == 0) return kernels::copy(in, slot, count * run.element, kernels::Store::kCached);
  const auto fold = [&](std::uint64_t from, std::uint64_t length) {
    std::byte* const part = slot + from * run.element;
    const std::array<const std::byte*, 2> inputs = {part, in + from * run.element};
    kernels::fold(run.call.type, run.call.reduce, inputs, part, length);
  };
  if (place_ + 1 < size_ || !run.exchange.takes(place_)) return fold(0, count);
  // The last one has the result in its first-level cache.
  constexpr std::size_t kPiece = 8192;
  auto* const out = static_cast<std::byte*>(run.call.out) + first * run.element;
  const std::uint64_t length = kPiece / run.element;
  for (std::uint64_t from = 0; from < count; from += length) {
    const std::uint64_t part = std::min(length, count - from);
    fold(from, part);
    kernels::copy(slot + from * run.element, out + from * run.element, part * run.element,
                  run.store_in(out, in));
  }
}

Status HostPath::chain(const Run& run) {
  const std::uint64_t length = chain_chunk(run) / run.element;
  const std::size_t stride = length * run.element;
  const std::uint64_t chunks = (run.call.count + length - 1) / length;
  const std::uint64_t window = Area::kSlots / stride;
  const std::uint64_t end = chunks_ + chunks;
  const std::uint64_t lag = chain_lag();
  const int last = size_ - 1;
  const bool takes = run.exchange.takes(place_) && place_ != last;  // what others folded last
  const auto filled = [&](int place) -> std::uint64_t {
    return area_.words(place).filled.load(std::memory_order_acquire);
  };
  const auto drained = [&](int place) -> std::uint64_t {
    return area_.words(place).drained.load(std::memory_order_acquire);
  };
  // Who could move on and does not: the first of those whose turn came last, or who has not taken
  // what all have folded.
  const auto late = [&](int who) {
    int first = 0;
    for (int place = 1; place < size_; ++place) {
      if (filled(place) < filled(first)) first = place;
    }
    return filled(first) < end ? who == first : drained(who) < end;
  };
  const auto mark = [&](std::atomic<std::uint64_t>& counter, std::uint64_t chunk) {
    counter.store(chunks_ + chunk + 1, std::memory_order_release);
    area_.bell().ring();
  };
  RankWords& mine = area_.words(place_);
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  auto* const out = static_cast<std::byte*>(run.call.out);
  look_elsewhere_ = false;  // other cores have several chunks to work at first
  for (std::uint64_t step = 0; step < chunks + lag; ++step) {
    const auto slot = [&](std::uint64_t chunk) { return area_.slots(0) + chunk % window * stride; };
    const auto count = [&](std::uint64_t chunk) {
      return std::min(length, run.call.count - chunk * length);
    };
    if (step < chunks) {
      if (place_ != 0) {
        const std::uint64_t turn = chunks_ + step + 1;
        HCCL_RETURN_IF_ERROR(await(
            run, place_ - 1, [&](int who) { return filled(who) >= turn; }, late));
      } else if (step >= window) {
        const std::uint64_t free = chunks_ + step - window + 1;
        for (int place = 1; place < size_; ++place) {
          HCCL_RETURN_IF_ERROR(await(
              run, place, [&](int who) { return drained(who) >= free; }, late));
        }
      }
      take_turn(run, slot(step), step * length, count(step));
      mark(mine.filled, step);
      if (!takes) mark(mine.drained, step);
    }
    if (!takes || step < lag) continue;
    const std::uint64_t chunk = step - lag;
    const std::uint64_t done = chunks_ + chunk + 1;
    HCCL_RETURN_IF_ERROR(await(
        run, last, [&](int who) { return filled(who) >= done; }, late));
    kernels::copy(slot(chunk), out + chunk * stride, count(chunk) * run.element,
                  run.store_in(out, in));
    mark(mine.drained, chunk);
  }
  chunks_ = end;
  ring_at_ = 0;
  return {};
}

}  // namespace hccl::exec::host
