#include "hccl/local/region.h"

#include <utility>

#include "hccl/base/pages.h"

namespace hccl::local {

// Each rank faults in its own memory, so that the memory is close to its core.
template <class Atomics>
BasicRegion<Atomics>::BasicRegion(const HostMemory& memory, BasicWaiter<Atomics> waiter,
                                  WaitPolicy background)
    : memory_(memory),
      base_(memory.area.data()),
      local_rank_(memory.local_rank),
      size_(static_cast<int>(memory.ranks.size())),
      waiter_(std::move(waiter)),
      background_(waiter_) {
  background_.policy = background;
  doorbell().join();
  fault_in(&control(local_rank_), sizeof(ControlBlock));
  if (size_ <= kMapped) fault_in(staging(local_rank_), kStaging);
}

template <class Atomics>
void BasicRegion<Atomics>::map_all() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == local_rank_) continue;
    fault_in(&control(peer), sizeof(ControlBlock));
    if (size_ <= kMapped) fault_in(staging(peer), kStaging);
  }
}

template <class Atomics>
void BasicRegion<Atomics>::await_left() {
  constexpr std::chrono::milliseconds kLongestCopy{100};
  // If a rank has not announced this call yet, it will see that this rank has withdrawn.
  const bool withdrawn = word(local_rank_) == Slot::kWithdrawn;
  if (withdrawn) doorbell().fence();
  const auto all_left = [&] {
    for (int peer = 0; peer < size_; ++peer) {
      if (control(peer).left.load(std::memory_order_acquire) >= number_) continue;
      if (!withdrawn || announced(peer)) return false;
    }
    return true;
  };
  const Waiter waiter{.timeout = kLongestCopy, .policy = waiter_.policy};
  static_cast<void>(waiter.until(all_left, doorbell()));
}

template <class Atomics>
void BasicRegion<Atomics>::lost(int rank) {
  for (int local_rank = 0; local_rank < size_; ++local_rank) {
    if (rank_of(local_rank) != rank) continue;
    control(local_rank).left.store(~std::uint64_t{0}, std::memory_order_release);
    doorbell().wake();
  }
}

template <class Atomics>
Status BasicRegion<Atomics>::await_failure() {
  constexpr std::chrono::milliseconds kNews{100};
  const Waiter waiter{.timeout = kNews, .abort = waiter_.abort, .policy = waiter_.policy};
  const Waited waited = waiter.until([] { return false; }, doorbell());
  return waited == Waited::kAborted ? waiter_.abort->reason() : Status();
}

template <class Atomics>
Status BasicRegion<Atomics>::barrier() {
  control(local_rank_).barriers.store(++barriers_, std::memory_order_release);
  doorbell().ring();
  return await_each([&](int peer) {
    return control(peer).barriers.load(std::memory_order_acquire) >= barriers_;
  });
}

// Skips ranks that withdrew; they have reported why.
template <class Atomics>
Status BasicRegion<Atomics>::mismatch() {
  for (int peer = 0; peer < size_; ++peer) {
    if (word(peer) == key() || !announced(peer)) continue;
    return hccl::mismatch(rank_of(local_rank_), *call_, rank_of(peer),
                          control(peer).calls[number_ & 1]);
  }
  return await_long([] { return false; },
                    [&](int peer) { return !announced(peer) && word(peer) != Slot::kWithdrawn; });
}

template <class Atomics>
Status BasicRegion<Atomics>::await_long(const std::function<bool()>& done,
                                        const std::function<bool(int)>& late) {
  waited_ = true;
  const auto describe = [&] {
    WaitingCall pending{call_->sequence, call_text(), {}};
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != local_rank_ && late(peer)) pending.late.push_back(rank_of(peer));
    }
    return pending;
  };
  return waiting_->wait(done, describe, doorbell());
}

template class BasicRegion<StdAtomics>;

}  // namespace hccl::local
