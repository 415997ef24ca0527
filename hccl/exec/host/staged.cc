// The ways that go through the shared area: post, ring and stage.
#include <algorithm>
#include <cstring>
#include <utility>

#include "hccl/base/ticks.h"
#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {


// ---- inputs with the post ----

Status HostPath::in_post(const Run& run) {
  HCCL_RETURN_IF_ERROR(meet(run));
  const std::size_t from = run.from_start_of_input();
  take(run, 0, run.call.count, [&](int giver) { return input_of(run, giver) + from; });
  return {};
}

// ---- how data is stored into the rings ----

// Shorter inputs are not put past the caches: between far cores 2 KiB 0.93 -> 1.1 us, 4 KiB 1.6 ->
// 1.4, 16 KiB 4.2 -> 2.7.
static constexpr std::size_t kStreamed = 4096;

// The same on all ranks. Not where the ranks of a core have different things to do.
bool HostPath::tries_ring_store(const Run& run) const {
  return run.bytes >= kStreamed && !folds_for_core(run);
}

void HostPath::begin_ring_trial(const Run& run) {
  in_ring_ = tries_ring_store(run) ? ring_store_.next() : ring_store_.kept();
  ring_ticks_ = 0;
}

// bytes: as long as a rank's input may be that went through its ring since begin_ring_trial().
void HostPath::end_ring_trial(const Run& run, std::uint64_t bytes) {
  if (tries_ring_store(run)) ring_store_.took({run.call.op, bytes}, ring_ticks_);
}

// What is stored into rings, and read from them: without the waiting, which is others' time.
template <class Work>
void HostPath::timed_at_rings(Work&& work) {
  if (!ring_store_.timed()) return work();
  const std::uint64_t begin = ticks();
  work();
  ring_ticks_ += ticks() - begin;
}

// ---- whole inputs through the ring ----

// Inputs up to here are asked for before they are there. Among two ranks, a line in 60 ns: 64 B
// 0.23 -> 0.19 us, 256 B 0.22 -> 0.19; in 200 ns 0.53 -> 0.40, 0.68 -> 0.45. Of 512 B readers come
// in the way of who writes: 0.56 -> 0.78.
static constexpr std::size_t kAsked = 256;

// Where ranks share cores, an allreduce's result of such a length is folded by whichever rank of a
// core comes first, and copied by the others. Shorter ones are folded as fast as copied.
static constexpr std::size_t kFoldedForCore = 1024;
static constexpr std::size_t kMostFoldedForCore = std::size_t{64} << 10;

static constexpr std::size_t in_lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// The same on all ranks: behind such an input there is room for the result.
bool HostPath::folds_for_core(const Run& run) const {
  return watch_.policy.shared_cores && run.call.op == Op::kAllReduce &&
         run.bytes >= kFoldedForCore && run.bytes <= kMostFoldedForCore;
}

// The place of the next input in everybody's ring. It differs from the last operation's, which a
// peer may still be reading; the one before that is over. All ranks move on alike.
std::size_t HostPath::next_in_ring(std::size_t bytes) const {
  return ring_at_ + bytes > Area::kRing ? 0 : ring_at_;
}

std::size_t HostPath::put_in_ring(const Run& run) {
  const std::size_t bytes = run.exchange.input() * run.element;
  const std::size_t room = in_lines(bytes) * (folds_for_core(run) ? 2 : 1);
  const std::size_t at = next_in_ring(room);
  ring_at_ = at + room;
  if (run.exchange.gives(place_)) {
    timed_at_rings([&] {
      kernels::copy(static_cast<const std::byte*>(run.call.in), area_.ring(place_) + at, bytes,
                    bytes >= kStreamed ? in_ring_ : kernels::Store::kCached);
    });
  }
  return at;
}

// What the others read of it; nobody reads one's own block.
void HostPath::hand_over_ring(const Run& run) const {
  if (!run.exchange.gives(place_) || run.bytes > kHinted) return;
  const std::byte* const ring = area_.ring(place_) + run.in_ring;
  if (!run.exchange.block_for_each()) return hand_over(ring, run.bytes);
  const Block own = run.exchange.in(place_);
  const std::size_t behind = (own.at + own.count) * run.element;
  hand_over(ring, own.at * run.element);
  hand_over(ring + behind, run.bytes - behind);
}

// The lines of a short input come together with that of its post, rather than after it, if they are
// asked for as often as the post is looked at.
bool HostPath::asks_for_inputs(const Run& run) const {
  return way_ == Way::kRing && run.bytes <= kAsked && !watch_.policy.shared_cores;
}

void HostPath::ask_for_input(const Run& run, int giver) const {
  if (!run.exchange.gives(giver)) return;
  will_read(area_.ring(giver) + run.in_ring + run.from_start_of_input(),
            run.call.count * run.element);
}

// While a longer input from a root is awaited there is time to ask for the lines of the next run:
// broadcast of 8 KiB, a line in 60 ns, 0.86 -> 0.66 us, but of 64 B in 200 ns 0.48 -> 0.57.
static bool asks_early(const Run& run) { return run.exchange.from_root() && run.bytes > kAsked; }

void HostPath::ask_before_meeting(const Run& run) const {
  if (asks_early(run)) ask_for_next(run);
  for (int giver = 0; asks_for_inputs(run) && giver < size_; ++giver) {
    if (giver != place_) ask_for_input(run, giver);
  }
}

void HostPath::ask_after_run(const Run& run) const {
  if (!asks_early(run)) ask_for_next(run);
}

// The next run is likely to be like this one, though perhaps of another root.
void HostPath::ask_for_next(const Run& run) const {
  will_write(area_.ring(place_) + next_in_ring(run.bytes), std::min(run.bytes, kHinted));
}

// Nobody waits for another rank's result: it is there already, or a rank folds for itself.
void HostPath::fold_for_core(const Run& run, std::size_t at) {
  const std::size_t behind = at + in_lines(run.bytes);
  auto* const out = static_cast<std::byte*>(run.call.out);
  bool alone = true;
  for (int place = 0; place < size_; ++place) {
    if (place == place_ || !shares_core(place)) continue;
    alone = false;
    if (area_.words(place).folded_for_core.load(std::memory_order_acquire) != number_) continue;
    kernels::copy(area_.ring(place) + behind, out, run.bytes, kernels::Store::kCached);
    return;
  }
  for (int giver = 0; giver < size_; ++giver) {
    inputs_[static_cast<std::size_t>(giver)] =
        giver == place_ ? static_cast<const std::byte*>(run.call.in) : area_.ring(giver) + at;
  }
  std::byte* const result = alone ? out : area_.ring(place_) + behind;
  kernels::fold(run.call.type, run.call.reduce, inputs_, result, run.call.count);
  if (alone) return;
  area_.words(place_).folded_for_core.store(number_, std::memory_order_release);
  kernels::copy(result, out, run.bytes, kernels::Store::kCached);
}

void HostPath::from_ring(const Run& run, std::size_t at) {
  if (folds_for_core(run)) return fold_for_core(run, at);
  const std::size_t from = at + run.from_start_of_input();
  timed_at_rings(
      [&] { take(run, 0, run.call.count, [&](int giver) { return area_.ring(giver) + from; }); });
}

// After the ranks have met.
Status HostPath::through_ring(const Run& run) {
  begin_ring_trial(run);
  const std::size_t at = put_in_ring(run);
  ++chunks_;
  RankWords& mine = area_.words(place_);
  mine.folded.store(chunks_, std::memory_order_relaxed);
  mine.drained.store(chunks_, std::memory_order_relaxed);
  mine.filled.store(chunks_, std::memory_order_release);
  area_.bell().ring();
  HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::filled, chunks_));
  from_ring(run, at);
  end_ring_trial(run, run.bytes);
  return {};
}

// ---- chunks through the ring ----

void HostPath::fill(const Run& run, std::byte* slot, std::uint64_t first, std::uint64_t length,
                    std::size_t stride) {
  const Exchange& exchange = run.exchange;
  if (!exchange.gives(place_)) return;
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  timed_at_rings([&] {
    for (int taker = 0; taker < (exchange.block_for_each() ? size_ : 1); ++taker) {
      if (exchange.block_for_each() && taker == place_) continue;
      const Block block = exchange.in(taker);
      if (first >= block.count) continue;
      kernels::copy(in + (block.at + first) * run.element,
                    slot + stride * static_cast<std::size_t>(taker),
                    std::min(length, block.count - first) * run.element, in_ring_);
    }
  });
}

Status HostPath::stage(const Run& run) {
  const Exchange& exchange = run.exchange;
  std::uint64_t longest = 0;
  for (int place = 0; place < size_; ++place) {
    longest = std::max(longest, notice_of(place).longest);
  }
  const bool two_hops = run.call.op == Op::kAllReduce && size_ > ways_.most_that_fold_all;
  const auto segments = static_cast<std::size_t>(exchange.block_for_each() ? size_ : 1);
  // What the root alone puts into its ring the others wait for: 4 ranks on 2 cores, 1 MiB 225 ->
  // 200 us.
  constexpr std::size_t kRootChunk = std::size_t{128} << 10;
  // What comes from memory each time is read twice, and should still be in the second-level cache:
  // 2 ranks, a line in 60 ns, 12 MiB 1.18 -> 1.02 ms, 16 MiB 1.70 -> 1.40, 256 MiB 33 -> 31; of
  // 4 MiB, which stay in the third level, 0.25 -> 0.27.
  constexpr std::uint64_t kFromMemory = std::uint64_t{12} << 20;
  constexpr std::size_t kMemoryChunk = std::size_t{64} << 10;
  std::size_t chunk_bytes = ways_.chunk;
  if (exchange.from_root()) chunk_bytes = std::min(chunk_bytes, kRootChunk);
  if (exchange.folds() && !two_hops && !watch_.policy.shared_cores &&
      longest * run.element >= kFromMemory) {
    chunk_bytes = std::min(chunk_bytes, kMemoryChunk);
  }
  const std::size_t stride = std::max(chunk_bytes / segments / kCacheLine * kCacheLine, kCacheLine);
  const std::uint64_t length = stride / run.element;
  const std::uint64_t chunks = (longest + length - 1) / length;
  // Nobody has anything: the ranks still leave together, as block tables are written anew.
  if (chunks == 0) return gate(run);
  const std::uint64_t window = Area::kSlots / (stride * segments);
  const auto slot = [&](int place, std::uint64_t chunk) {
    return area_.slots(place) + chunk % window * (stride * segments);
  };
  RankWords& mine = area_.words(place_);
  const auto mark = [&](std::atomic<std::uint64_t>& counter, std::uint64_t chunk) {
    counter.store(chunks_ + chunk + 1, std::memory_order_release);
    area_.bell().ring();
  };
  const std::uint64_t lag = two_hops ? 2 : 1;
  const kernels::Store store = run.call.in == run.call.out ? kernels::Store::kCached : run.store;
  // A long run is tried ring by ring.
  std::uint64_t tried = 0;
  begin_ring_trial(run);
  for (std::uint64_t step = 0; step < chunks + lag; ++step) {
    if (step < chunks) {
      if (step >= window) {
        HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::drained, chunks_ + step - window + 1));
      }
      fill(run, slot(place_, step), step * length, length, stride);
      mark(mine.filled, step);
    }
    if (two_hops && step >= 1 && step - 1 < chunks) {
      // Slice `place` of everybody's chunk, folded into one's own: nobody else reads that slice.
      const std::uint64_t chunk = step - 1;
      HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::filled, chunks_ + chunk + 1));
      const Block part = run.slice(place_, std::min(length, run.call.count - chunk * length));
      for (int place = 0; place < size_; ++place) {
        inputs_[static_cast<std::size_t>(place)] = slot(place, chunk) + part.at * run.element;
      }
      timed_at_rings([&] {
        kernels::fold(run.call.type, run.call.reduce, inputs_,
                      slot(place_, chunk) + part.at * run.element, part.count, in_ring_);
      });
      mark(mine.folded, chunk);
    }
    if (step < lag) continue;
    const std::uint64_t chunk = step - lag;
    HCCL_RETURN_IF_ERROR(
        all_at(run, two_hops ? &RankWords::folded : &RankWords::filled, chunks_ + chunk + 1));
    if (two_hops) {
      const std::uint64_t first = chunk * length;
      timed_at_rings([&] {
        for (int place = 0; place < size_; ++place) {
          const Block part = run.slice(place, std::min(length, run.call.count - first));
          kernels::copy(slot(place, chunk) + part.at * run.element,
                        static_cast<std::byte*>(run.call.out) + (first + part.at) * run.element,
                        part.count * run.element, store);
        }
      });
    } else {
      timed_at_rings([&] {
        take(run, chunk * length, length, [&](int giver) {
          return slot(giver, chunk) +
                 (exchange.block_for_each() ? stride * static_cast<std::size_t>(place_) : 0);
        });
      });
    }
    mark(mine.drained, chunk);
    tried += stride * segments;
    if (tried >= Area::kRing || chunk + 1 == chunks) {
      end_ring_trial(run, std::exchange(tried, 0));
      begin_ring_trial(run);
    }
  }
  chunks_ += chunks;
  ring_at_ = 0;
  return {};
}

}  // namespace hccl::exec::host
