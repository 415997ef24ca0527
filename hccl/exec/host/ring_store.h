// How data is stored into a rank's ring: in the caches or past them. Which is faster depends on how
// far the readers' cores are (opening_probe.h), and that may change while a program runs: where
// ranks are not bound, or a machine's processors move. So the other one is tried now and then.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hccl/kernels/kernels.h"
#include "hccl/schedule/schedule.h"

namespace hccl::exec::host {

/// Belongs to one rank; need not be alike on all of them. Where all give alike they count the same
/// runs, and try together.
class RingStore {
 public:
  /// What is compared: runs of one kind only. A long one counts as several, each about as long as
  /// a ring.
  struct Kind {
    Op op;
    std::uint64_t bytes;
    bool operator==(const Kind&) const = default;
  };
  /// ring: its bytes. It has been written twice before anything in it is like the other store.
  explicit RingStore(std::uint64_t ring) : ring_(ring) {}

  /// What takes at most this part of the time is faster. Where cores share a cache, storing past
  /// it takes twice the time, where they do not, half.
  static constexpr double kWorth = 0.85;

  kernels::Store kept() const { return kept_; }
  void keep(kernels::Store store) {
    kept_ = store;
    enter(Phase::kRest);
  }

  /// For the next run.
  kernels::Store next() const {
    return phase_ == Phase::kRest || phase_ == Phase::kKept ? kept_ : other();
  }
  /// Whether the time of that run counts.
  bool timed() const { return phase_ == Phase::kKept || phase_ == Phase::kOther; }
  /// That run put so many bytes into the ring, and took so long for it and for reading the others'.
  void took(Kind kind, std::uint64_t ticks) {
    if (phase_ != Phase::kRest) return tried(kind, ticks);
    bytes_ += std::min(kind.bytes, ring_ / 2);
    if (bytes_ < kRestRings * ring_) return;
    kind_ = kind;
    enter(Phase::kKept);
  }

 private:
  /// kRest, kKept: the kept one is used, and in the latter timed; kWarm, kOther: the other one.
  enum class Phase : std::uint8_t { kRest, kKept, kWarm, kOther };
  // At least 256 runs. The wrong one takes twice the time: then trying it costs a fiftieth.
  static constexpr std::uint64_t kRestRings = 128;
  static constexpr std::uint64_t kTimed = 3;
  static constexpr std::uint64_t kPatience = 64;

  [[gnu::noinline]] void tried(Kind kind, std::uint64_t ticks) {
    ++runs_;
    bytes_ += kind.bytes;
    if (phase_ == Phase::kWarm) {
      if (bytes_ >= 2 * ring_) enter(Phase::kOther);
      return;
    }
    if (kind == kind_) {
      best_ = timed_ == 0 ? ticks : std::min(best_, ticks);
      ++timed_;
    }
    if (timed_ < kTimed) {
      if (runs_ >= kPatience) enter(Phase::kRest);  // this kind comes no more
      return;
    }
    if (phase_ == Phase::kKept) {
      best_kept_ = best_;
      enter(Phase::kWarm);
    } else {
      if (static_cast<double>(best_) < kWorth * static_cast<double>(best_kept_)) kept_ = other();
      enter(Phase::kRest);
    }
  }

  kernels::Store other() const {
    return kept_ == kernels::Store::kCached ? kernels::Store::kStream : kernels::Store::kCached;
  }
  void enter(Phase phase) {
    phase_ = phase;
    runs_ = bytes_ = timed_ = 0;
  }

  std::uint64_t ring_;
  kernels::Store kept_ = kernels::Store::kCached;
  Phase phase_ = Phase::kRest;
  Kind kind_{};
  std::uint64_t runs_ = 0;  // of this phase
  std::uint64_t bytes_ = 0;
  std::uint64_t timed_ = 0;
  std::uint64_t best_ = 0;
  std::uint64_t best_kept_ = 0;
};

}  // namespace hccl::exec::host
