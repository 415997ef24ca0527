#include "hccl/local/region.h"

#include <utility>

#include "hccl/base/pages.h"

namespace hccl::local {

// Each rank faults in what is its own, on the memory next to its core.
Region::Region(const HostMemory& memory, Watch watch)
    : memory_(memory),
      base_(memory.area.data()),
      place_(memory.place),
      size_(static_cast<int>(memory.ranks.size())),
      watch_(std::move(watch)) {
  doorbell().join();
  fault_in(&control(place_), sizeof(ControlBlock));
  fault_in(staging(place_), kStaging);
}

void Region::map_all() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == place_) continue;
    fault_in(&control(peer), sizeof(ControlBlock));
    fault_in(staging(peer), kStaging);
  }
}

void Region::await_left() {
  constexpr std::chrono::milliseconds kLongestCopy{100};
  const auto all_left = [&] {
    for (int peer = 0; peer < size_; ++peer) {
      if (control(peer).left.load(std::memory_order_acquire) < number_) return false;
    }
    return true;
  };
  static_cast<void>(
      hccl::wait(all_left, Deadline::after(kLongestCopy), nullptr, doorbell(), watch_.policy));
}

Status Region::await_failure() {
  constexpr std::chrono::milliseconds kNews{100};
  const Waited waited = hccl::wait([] { return false; }, Deadline::after(kNews), watch_.abort,
                                   doorbell(), watch_.policy);
  return waited == Waited::kAborted ? watch_.abort->reason() : Status();
}

Status Region::barrier() {
  control(place_).barriers.store(++barriers_, std::memory_order_release);
  doorbell().ring();
  return await_each([&](int peer) {
    return control(peer).barriers.load(std::memory_order_acquire) >= barriers_;
  });
}

// A rank whose announcement is withdrawn has failed, and told why: it is not what is looked for.
Status Region::mismatch() {
  for (int peer = 0; peer < size_; ++peer) {
    const std::uint64_t word = slot(peer).word.load(std::memory_order_acquire);
    if (word == fingerprint_ || !announced(word)) continue;
    return hccl::mismatch(rank_of(place_), *call_, rank_of(peer),
                          control(peer).calls[number_ & 1]);
  }
  return await_long([] { return false; },
                    [&](int peer) {
                      const std::uint64_t word = slot(peer).word.load(std::memory_order_acquire);
                      return !announced(word) && word != Slot::kWithdrawn;
                    });
}

Status Region::await_long(const std::function<bool()>& done, const Predicate& late) {
  waited_ = true;
  Limits limits;
  limits.deadline =
      watch_.timeout.count() == 0 ? Deadline::never() : Deadline::after(watch_.timeout);
  limits.abort = watch_.abort;
  limits.policy = *policy_;
  if (watch_.stalled) {
    limits.stalled = [&](const std::string& text, const std::vector<int>& ranks) {
      watch_.stalled(call_->sequence, text, ranks);
    };
  }
  const auto late_ranks = [&] {
    std::vector<int> ranks;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != place_ && late(peer)) ranks.push_back(rank_of(peer));
    }
    return ranks;
  };
  const auto text = [&] { return call_text(); };
  if (!meanwhile_) return hccl::await(done, text, late_ranks, limits, doorbell());
  limits.policy.longest_nap = std::chrono::milliseconds(1);
  Status failure;
  const auto ready = [&] {
    if (failure.ok()) failure = meanwhile_();
    return !failure.ok() || done();
  };
  HCCL_RETURN_IF_ERROR(hccl::await(ready, text, late_ranks, limits, doorbell()));
  return failure;
}

}  // namespace hccl::local
