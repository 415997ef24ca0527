// An operation that runs in the background: a message with a tag, or work in a queue.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "hccl/base/deadline.h"
#include "hccl/base/status.h"

namespace hccl {

class Request {
 public:
  using Done = std::function<void(const Status&)>;

  Request() = default;
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// When it is done: its result.
  const Status& status() const { return status_; }
  /// Waits until it is done. kTimeout: not by the deadline; it goes on.
  virtual Status wait(Deadline deadline) = 0;
  /// The other rank of a message; null for work.
  virtual const int* peer() const { return nullptr; }
  /// See WorkQueue. Not of messages.
  virtual void mark() {}

 protected:
  Done on_done_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hccl
