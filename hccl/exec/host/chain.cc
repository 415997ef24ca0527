// The way in which ranks take turns: each folds its input into the same chunk of one ring.
#include <algorithm>
#include <array>

#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {

// The ring holds a chunk for each rank and one more, each of a length that is worth a turn.
static constexpr int kMostInChain = static_cast<int>(Area::kSlots / Ways::kLeastChunk) - 2;

// The bits are those of a fold of all inputs at once, in the order of the turns. Of types that such
// a fold rounds only at its end they would not be.
bool HostPath::chains(const Run& run) const {
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

// Rounds that this rank folds before it takes the results of the first. Of several chains: those
// that are under way. Of one: as many as are under way behind this rank, if every core that the
// chain comes to works at one.
std::uint64_t HostPath::chain_lag(const Chains& chains) const {
  if (chains.number() > 1) return chains.number();
  const auto core = [&](std::size_t turn) {
    const int place = chains.turns()[turn];
    return cores_.bound() ? cores_.first(place)
                          : area_.words(place).core.load(std::memory_order_relaxed);
  };
  const std::size_t mine = chains.turn_of(place_), end = chains.turns().size();
  std::uint64_t lag = mine + 1 < end ? 1 : 0;
  for (std::size_t turn = mine; turn + 1 < end; ++turn) {
    if (!watch_.policy.shared_cores || core(turn) != core(turn + 1)) ++lag;
  }
  return lag;
}

// first, last: of the chain.
void HostPath::take_turn(const Run& run, bool first, bool last, std::byte* slot, Block part) {
  const auto* const in = static_cast<const std::byte*>(run.call.in) + part.at * run.element;
  if (first) return kernels::copy(in, slot, part.count * run.element, kernels::Store::kCached);
  const auto fold = [&](std::uint64_t from, std::uint64_t length) {
    std::byte* const to = slot + from * run.element;
    const std::array<const std::byte*, 2> inputs = {to, in + from * run.element};
    kernels::fold(run.call.type, run.call.reduce, inputs, to, length);
  };
  if (!last || !run.exchange.takes(place_)) return fold(0, part.count);
  // The last one has the result in its first-level cache.
  constexpr std::size_t kPiece = 8192;
  auto* const out = static_cast<std::byte*>(run.call.out) + part.at * run.element;
  const std::uint64_t length = kPiece / run.element;
  for (std::uint64_t from = 0; from < part.count; from += length) {
    const std::uint64_t count = std::min(length, part.count - from);
    fold(from, count);
    kernels::copy(slot + from * run.element, out + from * run.element, count * run.element,
                  run.store_in(out, in));
  }
}

// In step t a rank takes its turn in round t of the chain that begins with its group, in round t-1
// of the one that is at its group next, and so on; `filled` counts these turns. Then it takes the
// results of a round.
Status HostPath::chain(const Run& run) {
  const Chains& chains = run.mine.algorithm == kInRankOrder ? in_rank_order_ : by_core_;
  const std::uint64_t stages = chains.number();
  const std::size_t turn = chains.turn_of(place_), group = chains.group_of(turn);
  const std::uint64_t length = chain_chunk(run) / run.element;
  const std::size_t stride = length * run.element;
  const std::uint64_t chunks = (run.call.count + length - 1) / length;
  const std::uint64_t rounds = (chunks + stages - 1) / stages;
  const std::uint64_t window = Area::kSlots / stride;
  const std::uint64_t lag = chain_lag(chains);
  const std::uint64_t last_turn = chunks_ + (rounds + stages - 1) * stages;
  const auto filled = [&](int place) -> std::uint64_t {
    return area_.words(place).filled.load(std::memory_order_acquire);
  };
  const auto drained = [&](int place) -> std::uint64_t {
    return area_.words(place).drained.load(std::memory_order_acquire);
  };
  // What `filled` is after the turn in this round, in the chain in which the group is at `stage`.
  const auto turns_by = [&](std::uint64_t round, std::uint64_t stage) {
    return chunks_ + (round + stage) * stages + stage + 1;
  };
  // Who could move on and does not: the first of those whose turn came last, or who has not taken
  // what all have folded.
  const auto late = [&](int who) {
    const int next = *std::min_element(chains.turns().begin(), chains.turns().end(),
                                       [&](int a, int b) { return filled(a) < filled(b); });
    return filled(next) < last_turn ? who == next : drained(who) < chunks_ + rounds;
  };
  const auto mark = [&](std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    counter.store(value, std::memory_order_release);
    area_.bell().ring();
  };
  const auto slot = [&](std::size_t chain, std::uint64_t round) {
    return area_.slots(chains.first(chain)) + round % window * stride;
  };
  const auto part = [&](std::size_t chain, std::uint64_t round) -> Block {
    const std::uint64_t at = (round * stages + chain) * length;
    return {at, at < run.call.count ? std::min(length, run.call.count - at) : 0};
  };
  RankWords& mine = area_.words(place_);
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  auto* const out = static_cast<std::byte*>(run.call.out);
  look_elsewhere_ = false;  // other cores have several chunks to work at first
  for (std::uint64_t step = 0; step < rounds + lag; ++step) {
    for (std::uint64_t stage = 0; stage < stages && step < rounds + stages - 1; ++stage) {
      const std::uint64_t round = step - stage;
      const std::size_t chain = chains.chain_at(group, stage);
      if (step >= stage && round < rounds && part(chain, round).count != 0) {
        const bool first = place_ == chains.first(chain);
        if (!first) {
          // Who is before this one is in the same group, or ends the one before it.
          const int before = chains.before(turn);
          const std::uint64_t due =
              turns_by(round, chains.group_of(chains.turn_of(before)) == group ? stage : stage - 1);
          HCCL_RETURN_IF_ERROR(await(
              run, before, [&](int who) { return filled(who) >= due; }, late));
        } else if (round >= window) {
          const std::uint64_t free = chunks_ + round - window + 1;
          for (const int place : chains.turns()) {
            if (place == place_) continue;
            HCCL_RETURN_IF_ERROR(await(
                run, place, [&](int who) { return drained(who) >= free; }, late));
          }
        }
        take_turn(run, first, place_ == chains.last(chain), slot(chain, round), part(chain, round));
      }
      mark(mine.filled, chunks_ + step * stages + stage + 1);
    }
    if (step < lag) continue;
    const std::uint64_t round = step - lag;
    for (std::size_t i = 0; i < stages && run.exchange.takes(place_); ++i) {
      const std::size_t chain = chains.chain_at(group, stages - 1 - i);  // one's own last
      const int last = chains.last(chain);
      const Block block = part(chain, round);
      if (last == place_ || block.count == 0) continue;
      const std::uint64_t due = turns_by(round, stages - 1);
      HCCL_RETURN_IF_ERROR(await(
          run, last, [&](int who) { return filled(who) >= due; }, late));
      kernels::copy(slot(chain, round), out + block.at * run.element, block.count * run.element,
                    run.store_in(out, in));
    }
    mark(mine.drained, chunks_ + round + 1);
  }
  chunks_ = last_turn;
  ring_at_ = 0;
  return {};
}

}  // namespace hccl::exec::host
