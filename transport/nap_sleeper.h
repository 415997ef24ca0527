// Sleeps in short naps, for a transport without a descriptor to wait on. Naps grow while nothing
// happens: a nap adds at most a fifth to the wait so far. So a message is seen soon, and an idle
// rank uses little of its core. abort() ends a nap at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "hccl/base/waiter.h"

namespace hccl::transport {

class NapSleeper final : public Sleeper {
 public:
  /// Bytes have moved, so the next nap is short again. For the thread that uses the mesh.
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
