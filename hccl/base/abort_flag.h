// The flag that ends all waits of a communicator or transport.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "hccl/base/atomics.h"
#include "hccl/base/status.h"

namespace hccl {

/// Any thread may raise the flag. Only the first raise counts; later reasons are dropped.
template <class Atomics = StdAtomics>
class BasicAbortFlag {
 public:
  /// Returns false, and keeps the first reason, if the flag is raised already.
  bool raise(Status reason) {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    reason_ = std::move(reason);
    raised_.store(true, std::memory_order_release);
    return true;
  }
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  /// Returns the reason; success while the flag is not raised.
  Status reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  typename Atomics::template atomic<bool> raised_{false};
  mutable typename Atomics::mutex mutex_;
  Status reason_;
};

using AbortFlag = BasicAbortFlag<>;

}  // namespace hccl
