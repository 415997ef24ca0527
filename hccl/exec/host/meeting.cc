// How an operation begins: every rank says that it has come, and awaits the others.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {

// An input of up to posted_most_ bytes, or a Notice.
void HostPath::post(const Run& run, const void* payload, std::size_t bytes) {
  RankWords& words = area_.words(place_);
  if (watch_.policy.shared_cores && !cores_.bound()) {
    const int core = ::sched_getcpu();
    if (core != core_) words.core.store(core_ = core, std::memory_order_relaxed);
  }
  const std::uint64_t parity = number_ & 1;
  words.calls[parity] = run.mine;
  Post& post = words.posts[parity];
  if (bytes != 0) std::memcpy(post.payload(bytes), payload, bytes);
  post.line.word.store(number_ << 32 | run.fingerprint, std::memory_order_release);
  area_.bell().ring();
}

// Whether a word is of this operation, whatever the call.
static bool same_number(std::uint64_t word, std::uint64_t expected) {
  return (word ^ expected) >> 32 == 0;
}

// Who has not come. Who came and withdrew its post is not waited for, but for the reason.
bool HostPath::late(int place, std::uint64_t expected) const {
  const std::uint64_t word = post_of(place).line.word.load(std::memory_order_acquire);
  return !same_number(word, expected) && word != Line::kWithdrawn;
}

Status HostPath::meet(const Run& run) {
  if (cores_.bound()) return meet_by_cores(run);
  const std::uint64_t expected = number_ << 32 | run.fingerprint;
  const bool asks = asks_for_inputs(run);
  bool all = true;  // have come already: in whatever order
  for (int place = 0; place < size_; ++place) {
    all &= post_of(place).line.word.load(std::memory_order_acquire) == expected;
  }
  if (all) return {};
  return each_other([&](int place) __attribute__((always_inline))->Status {
    std::uint64_t word = 0;
    const auto posted = [&](int who) {
      if (asks) ask_for_input(run, who);
      word = post_of(who).line.word.load(std::memory_order_acquire);
      return same_number(word, expected);
    };
    HCCL_RETURN_IF_ERROR(await(run, place, posted, [&](int who) { return late(who, expected); }));
    return word == expected ? Status() : differing(run);
  });
}

// Looked at once for all, as a rank may move meanwhile, and none must be left out.
void HostPath::look_for_mates() {
  const auto end =
      std::partition(others_.begin(), others_.end(), [&](int place) { return shares_core(place); });
  mates_ = static_cast<std::size_t>(end - others_.begin());
}

// ---- core by core ----

// One rank of each core writes what other cores read, once all ranks of its core have come: so none
// gives the core away while its lines are on their way from there.
Status HostPath::meet_by_cores(const Run& run) {
  const std::uint64_t expected = number_ << 32 | run.fingerprint;
  const auto not_there = [&](int who) { return late(who, expected); };
  std::uint64_t word = 0;
  look_elsewhere_ = false;
  for (std::size_t i = 0; i < mates_; ++i) {
    const Line& post = post_of(others_[i]).line;
    const auto posted = [&](int) {
      word = post.word.load(std::memory_order_acquire);
      return same_number(word, expected);
    };
    HCCL_RETURN_IF_ERROR(await(run, others_[i], posted, not_there));
    if (word == expected) continue;
    tell(run, false);
    return differing(run);
  }
  tell(run, true);
  look_elsewhere_ = mates_ <= 1;
  for (const int first : cores_.other_firsts()) {
    const Post& told = told_by(first);
    const std::size_t asked = asked_of_told(run, first);
    const auto has_told = [&](int) {
      will_read(told.behind.data(), asked);
      word = told.line.word.load(std::memory_order_acquire);
      return same_number(word, expected);
    };
    HCCL_RETURN_IF_ERROR(await(run, first, has_told, not_there));
    if (word != expected) return differing(run);
  }
  return {};
}

// Who has come with another call; who has left since is not among them, and has told why.
Status HostPath::differing(const Run& run) {
  const std::uint64_t expected = number_ << 32 | run.fingerprint;
  for (int place = 0; place < size_; ++place) {
    const std::uint64_t word = post_of(place).line.word.load(std::memory_order_acquire);
    if (word == expected || !same_number(word, expected)) continue;
    return mismatch(rank_of(place_), run.mine, rank_of(place),
                    area_.words(place).calls[number_ & 1]);
  }
  return await(
      run, place_, [](int) { return false; }, [&](int who) { return late(who, expected); });
}

// Up to here lines that follow the first one are asked for together with it. 4 ranks on 2 cores, a
// line in 240 ns: 256 B 5.8 -> 5.2 us, 64 B 5.7 -> 5.3; in 60 ns, level. From 2 KiB on it loses.
static constexpr std::size_t kAskedOfTold = 512;

// Of what the core of this place tells.
std::size_t HostPath::asked_of_told(const Run& run, int place) const {
  if (way_ != Way::kPost || !core_gives(run, place)) return 0;
  const std::size_t bytes = run.bytes * cores_.most();
  return bytes > Line::kPayload && bytes <= kAskedOfTold ? bytes : 0;
}

bool HostPath::core_gives(const Run& run, int place) const {
  return !run.exchange.from_root() || cores_.first(place) == cores_.first(run.call.root);
}

Post& HostPath::told_by(int place) const {
  return area_.words(cores_.first(place)).told[number_ & 1];
}

// Where it is posted, for this core.
const std::byte* HostPath::input_of(const Run& run, int giver) const {
  if (!cores_.bound()) return post_of(giver).line.payload.data();
  if (cores_.on_mine(giver)) return post_of(giver).payload(run.bytes);
  return told_by(giver).payload(run.bytes * cores_.most()) + run.bytes * cores_.index(giver);
}

// alike: all ranks of this core have come with the same call.
void HostPath::tell(const Run& run, bool alike) {
  std::atomic<std::uint64_t>& claimed = area_.words(cores_.first(place_)).claimed;
  if (claimed.load(std::memory_order_relaxed) == number_ ||
      claimed.exchange(number_, std::memory_order_acq_rel) == number_) {
    return;
  }
  Post& told = told_by(place_);
  std::uint64_t before = told.line.word.load(std::memory_order_relaxed);
  if (before == Line::kWithdrawn) return;
  if (alike && way_ == Way::kPost && core_gives(run, place_)) {
    std::byte* const inputs = told.payload(run.bytes * cores_.most());
    if (const std::size_t asked = asked_of_told(run, place_); asked != 0) {  // all lines at once
      will_write(told.line.payload.data(), kCacheLine);
      will_write(told.behind.data(), asked);
    }
    for (int place = 0; place < size_; ++place) {
      if (!cores_.on_mine(place) || !run.exchange.gives(place)) continue;
      std::memcpy(inputs + run.bytes * cores_.index(place), post_of(place).payload(run.bytes),
                  run.bytes);
    }
  }
  const std::uint64_t word = number_ << 32 | (run.fingerprint ^ (alike ? 0 : 1));
  // Unless a rank of this core has withdrawn its post meanwhile.
  told.line.word.compare_exchange_strong(before, word, std::memory_order_release,
                                         std::memory_order_relaxed);
  area_.bell().ring();
}

// Who comes later finds no post here, nor is told of it.
void HostPath::withdraw_post() {
  if (cores_.bound()) {
    told_by(place_).line.word.store(Line::kWithdrawn, std::memory_order_release);
  }
  post_of(place_).line.word.store(Line::kWithdrawn, std::memory_order_release);
}

// ---- in the middle ----

Status HostPath::gate(const Run& run) {
  area_.words(place_).gate.store(++gates_, std::memory_order_release);
  area_.bell().ring();
  return all_at(run, &RankWords::gate, gates_);
}

Status HostPath::all_at(const Run& run, std::atomic<std::uint64_t> RankWords::*counter,
                        std::uint64_t value) {
  return each_other([&](int place) __attribute__((always_inline)) {
    return await(run, place, [&](int who) {
      return (area_.words(who).*counter).load(std::memory_order_acquire) >= value;
    });
  });
}

}  // namespace hccl::exec::host
