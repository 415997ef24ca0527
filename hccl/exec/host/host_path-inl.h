// The parts of HostPath that its files share: waiting for the others, and taking what they give.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>

#include "hccl/base/cache_hints.h"
#include "hccl/exec/host/host_path.h"
#include "hccl/base/limits.h"
#include "hccl/kernels/kernels.h"

namespace hccl::exec::host {

// What a rank that fails gives the others to leave its memory.
inline constexpr std::chrono::milliseconds kLongestCopy{100};
// About as long as giving the core away and getting it back takes.
inline constexpr int kLooksElsewhere = 64;
// Inputs in the ring up to here are handed to the cache of their readers (cache_hints.h): 1 KiB
// among two ranks 0.75 -> 0.56 us where a line takes 140 ns from one core to the other, broadcast
// 0.95 -> 0.42. Of 16 KiB it gains little, of chunks of 128 KiB it loses half; nor does it pay
// where readers share the writer's core.
inline constexpr std::size_t kHinted = 8 * 1024;

inline bool HostPath::shares_core(int place) const {
  if (cores_.bound()) return cores_.on_mine(place);
  return area_.words(place).core.load(std::memory_order_relaxed) == core_;
}

// Awaits all other places.
template <class Await>
Status HostPath::each_other(Await&& await) {
  if (watch_.policy.shared_cores) return each_other_sharing(await);
  for (int place = 0; place < size_; ++place) {
    if (place != place_) HCCL_RETURN_IF_ERROR(await(place));
  }
  return {};
}

// First those that need this core to get on.
template <class Await>
[[gnu::noinline]] Status HostPath::each_other_sharing(Await&& await) {
  if (!cores_.bound()) look_for_mates();
  for (std::size_t i = 0; i < others_.size(); ++i) {
    look_elsewhere_ = i >= mates_ && mates_ <= 1;
    HCCL_RETURN_IF_ERROR(await(others_[i]));
  }
  return {};
}

// done(place): what is waited for. late(who): who is to be named if it does not come.
template <class Done, class Late>
[[gnu::always_inline]] inline Status HostPath::await(const Run& run, int place, Done&& done,
                                                     Late&& late) {
  const WaitPolicy& policy = run.call.background ? watch_.beside : watch_.policy;
  if (look_elsewhere_) {
    // Who runs on another core may come sooner than this core is given away and back; among many
    // ranks it hardly runs just now.
    for (int i = 0; i < kLooksElsewhere; ++i) {
      if (done(place)) return {};
      detail::pause();
    }
  }
  if (detail::at_once([&] { return done(place); }, policy)) return {};
  return await_long(run, place, done, late);
}

template <class Done, class Late>
[[gnu::noinline]] Status HostPath::await_long(const Run& run, int place, Done&& done, Late&& late) {
  waited_ = true;
  Limits limits;
  limits.deadline =
      watch_.timeout.count() == 0 ? Deadline::never() : Deadline::after(watch_.timeout);
  limits.abort = watch_.abort;
  limits.policy = run.call.background ? watch_.beside : watch_.policy;
  if (watch_.stalled) {
    limits.stalled = [&](const std::string& what, const std::vector<int>& awaited) {
      watch_.stalled(run.mine.sequence, what, awaited);
    };
  }
  const auto awaited = [&] {
    std::vector<int> ranks;
    for (int who = 0; who < size_; ++who) {
      if (who != place_ && late(who)) ranks.push_back(rank_of(who));
    }
    return ranks;
  };
  const auto what = [&] { return words(run.mine); };
  if (!meanwhile_) {
    return hccl::await([&] { return done(place); }, what, awaited, limits, area_.bell());
  }
  limits.policy.longest_nap = std::chrono::milliseconds(1);
  Status failure;
  const auto ready = [&] {
    if (failure.ok()) failure = meanwhile_();
    return !failure.ok() || done(place);
  };
  HCCL_RETURN_IF_ERROR(hccl::await(ready, what, awaited, limits, area_.bell()));
  return failure;
}

// Takes elements [first, first + length) of every block that is for this rank. at(giver) is where
// element `first` of the giver's block lies; one's own is taken from the caller's input.
template <class At>
void HostPath::take(const Run& run, std::uint64_t first, std::uint64_t length, At&& at) {
  const Exchange& exchange = run.exchange;
  if (!exchange.takes(place_)) return;
  auto* const out = static_cast<std::byte*>(run.call.out);
  const Block mine = exchange.in(place_);
  const auto own = [&] {  // only a giver has an input
    return static_cast<const std::byte*>(run.call.in) + (mine.at + first) * run.element;
  };
  if (exchange.folds()) {
    if (first >= mine.count) return;
    const std::byte** const inputs = inputs_.data();
    for (int giver = 0; giver < size_; ++giver) {
      inputs[giver] = giver == place_ ? own() : at(giver);
    }
    std::byte* const to = out + first * run.element;
    kernels::fold(run.call.type, run.call.reduce, inputs_, to, std::min(length, mine.count - first),
                  run.store_in(to, own()));
    return;
  }
  for (int giver = 0; giver < size_; ++giver) {
    const Block block = exchange.out(giver);
    if (!exchange.gives(giver) || first >= block.count) continue;
    const std::byte* const from = giver == place_ ? own() : at(giver);
    std::byte* const to = out + (block.at + first) * run.element;
    kernels::copy(from, to, std::min(length, block.count - first) * run.element, run.store);
  }
}

// Of operations in which every rank gives blocks and nobody folds: put(place, at, from, bytes) for
// the block of each other place, which belongs `at` bytes into its output; and one's own.
template <class Put>
Status HostPath::give_blocks(const Run& run, Put&& put) {
  const Exchange& exchange = run.exchange;
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  auto* const out = static_cast<std::byte*>(run.call.out);
  const Block own = exchange.in(place_);
  kernels::copy(in + own.at * run.element, out + exchange.out(place_).at * run.element,
                own.count * run.element, run.store_in(out, in));
  for (int i = 1; i < size_; ++i) {
    const int place = (place_ + i) % size_;
    const Block block = exchange.in(place);
    const std::uint64_t at = run.call.op == Op::kAllToAllV ? area_.takes(place)[place_].at
                                                                     : exchange.out(place_).at;
    HCCL_RETURN_IF_ERROR(
        put(place, at * run.element, in + block.at * run.element, block.count * run.element));
  }
  return {};
}

}  // namespace hccl::exec::host
