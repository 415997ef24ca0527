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
  /// The result. Valid once the request is done.
  const Status& status() const { return status_; }
  /// Waits until the request is done. kTimeout: the deadline has passed, and the request goes on.
  virtual Status wait(Deadline deadline) = 0;
  /// Returns the rank at the other end of a message; null for work in a queue.
  virtual const int* peer() const { return nullptr; }
  /// See WorkQueue::Entry::mark(). Messages ignore this call.
  virtual void mark() {}

 protected:
  Done on_done_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hccl
