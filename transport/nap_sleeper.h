// Where to sleep over a transport that has nothing to wait on: short naps that grow while nothing
// happens, so that an arrival is seen soon (a nap adds at most a fifth to the wait so far) and an
// idle rank costs little. abort() ends a nap at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "hccl/base/waiter.h"

namespace hccl::transport {

class NapSleeper final : public Sleeper {
 public:
  /// Something moved: the next nap is short again. The thread that uses the mesh.
  void moved() { nap_ = kShortest; }
  /// Ends a nap. Any thread.
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
