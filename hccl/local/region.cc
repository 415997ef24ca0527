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
      waits_(memory, doorbell(), std::move(waiter), background),
      staging_(base_ + staging_at(size_)) {
  doorbell().join();
  fault_in(&control(local_rank_), sizeof(ControlBlock));
  if (size_ <= kMapped) fault_in(staging_.of(local_rank_), Staging::kBytes);
}

template <class Atomics>
void BasicRegion<Atomics>::map_all() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == local_rank_) continue;
    fault_in(&control(peer), sizeof(ControlBlock));
    if (size_ <= kMapped) fault_in(staging_.of(peer), Staging::kBytes);
  }
}

template <class Atomics>
void BasicRegion<Atomics>::await_left() {
  constexpr std::chrono::milliseconds kLongestCopy{100};
  // A peer that has not announced this operation yet will see that this rank has withdrawn, so this
  // rank does not wait for that peer.
  const bool withdrawn = word(local_rank_) == Slot::kWithdrawn;
  if (withdrawn) doorbell().fence();
  const auto all_left = [&] {
    for (int peer = 0; peer < size_; ++peer) {
      if (control(peer).left.load(std::memory_order_acquire) >= number_) continue;
      if (!withdrawn || announced(peer)) return false;
    }
    return true;
  };
  const BasicWaiter<Atomics> waiter{.timeout = kLongestCopy, .policy = waits_.policy()};
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
Status BasicRegion<Atomics>::barrier() {
  control(local_rank_).barriers.store(++barriers_, std::memory_order_release);
  doorbell().ring();
  return waits_.each([&](int peer) {
    return control(peer).barriers.load(std::memory_order_acquire) >= barriers_;
  });
}

// Skips ranks that withdrew their announcements; these ranks have reported why.
template <class Atomics>
Status BasicRegion<Atomics>::mismatch() {
  for (int peer = 0; peer < size_; ++peer) {
    if (word(peer) == key() || !announced(peer)) continue;
    return hccl::mismatch(rank_of(local_rank_), waits_.call(), rank_of(peer),
                          control(peer).calls[number_ & 1]);
  }
  return waits_.until(
      local_rank_, [](int) { return false; },
      [&](int peer) { return !announced(peer) && word(peer) != Slot::kWithdrawn; });
}

template class BasicRegion<StdAtomics>;

}  // namespace hccl::local
