// Sleeps in short naps, for a transport without a descriptor to wait on. While nothing happens,
// each nap is a quarter longer than the one before, up to 1 ms. So a message is seen soon, and an
// idle rank uses little of its core. A mesh's abort() ends a nap at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "hccl/base/waiter.h"

namespace hccl::transport {

class NapSleeper final : public Sleeper {
 public:
  /// Call after bytes have moved: the next nap is then short. Only the thread that uses the mesh
  /// may call.
  void moved() { nap_ = kShortest; }
  /// Ends a nap. Any thread may call.
  void ring() { bell_.ring(); }

  std::uint32_t prepare() override { return bell_.prepare(); }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
    bell_.sleep(ticket, std::min(at_most, nap_));
    nap_ = std::min(nap_ + nap_ / 4, kLongest);
  }
  void awake() override { bell_.awake(); }

 private:
  static constexpr std::chrono::nanoseconds kShortest{10'000};
  static constexpr std::chrono::nanoseconds kLongest{1'000'000};
  Doorbell bell_;
  std::chrono::nanoseconds nap_ = kShortest;
};

}  // namespace hccl::transport
