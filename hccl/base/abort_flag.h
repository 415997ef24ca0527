// The word that ends all waits of a communicator or transport.
#pragma once

#include <atomic>
#include <mutex>

#include "hccl/base/status.h"

namespace hccl {

/// Raised once, by any thread; the first reason wins and stays.
class AbortFlag {
 public:
  /// False when a reason was there already (which is kept).
  bool raise(Status reason);
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  /// The reason; success while not raised.
  Status reason() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status reason_;
};

}  // namespace hccl
