// Puts a rank of a shared-memory mesh to sleep until a peer or an event wakes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "hccl/base/socket.h"
#include "hccl/base/waiter.h"
#include "transport/shm/segment.h"

namespace hccl::transport::shm {

/// Sleeps with the mesh's epoll sleeper (`inner`). A flag in shared memory tells the peers that
/// this rank sleeps and must be woken.
template <class Atomics = StdAtomics>
class BasicRankSleeper final : public PolledSleeper {
 public:
  /// `state` is null if this rank has no peers.
  BasicRankSleeper(PolledSleeper& inner, BasicRankState<Atomics>* state)
      : inner_(inner), state_(state) {}

  std::uint32_t prepare() override {
    if (state_ != nullptr) state_->asleep.store(1, std::memory_order_seq_cst);
    return inner_.prepare();
  }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
    inner_.sleep(ticket, at_most);
  }
  void awake() override {
    if (state_ != nullptr) state_->asleep.store(0, std::memory_order_seq_cst);
    inner_.awake();
  }

  int epoll() const override { return inner_.epoll(); }

 private:
  PolledSleeper& inner_;
  BasicRankState<Atomics>* state_;
};

using RankSleeper = BasicRankSleeper<>;

}  // namespace hccl::transport::shm
