// Operations of one communicator, in issue order, one at a time. The waiting caller or the worker
// thread runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"

namespace hccl::core {

class OpQueue {
 public:
  using Work = std::function<Status()>;
  class Op;
  using Ticket = std::shared_ptr<Op>;

  OpQueue() = default;
  /// Waits for the running operation; drops those that have not begun.
  ~OpQueue();
  OpQueue(const OpQueue&) = delete;
  OpQueue& operator=(const OpQueue&) = delete;

  /// The right to run an operation now, where nothing else is in line, which is the usual case.
  /// False: the caller has to defer().
  class Turn {
   public:
    explicit Turn(OpQueue& queue) : queue_(queue.enter() ? &queue : nullptr) {}
    ~Turn() {
      if (queue_ != nullptr) queue_->leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return queue_ != nullptr; }

   private:
    OpQueue* queue_;
  };
  /// Puts the work in line for the worker thread (started at the first call) and returns at once.
  Ticket submit(Work work);
  /// Puts the work in line for the caller that waits for it; the worker leaves it alone.
  Ticket defer(Work work);
  /// Takes a place in line for work that comes later; nothing behind the place runs before it.
  Ticket reserve();
  /// Fills the place, and runs the work on the caller's thread when its turn has come.
  Status run(const Ticket& place, Work work);
  /// Gives the place up.
  void cancel(const Ticket& place);
  /// The result of a ticket. Runs operations that the worker has not begun.
  Status wait(const Ticket& ticket);
  bool done(const Ticket& ticket) const;
  /// Work is in line or running.
  bool busy() const;

 private:
  // Two atomic operations where nothing else is in line.
  bool enter() {
    std::uint32_t idle = 0;
    return state_.compare_exchange_strong(idle, kRunning, std::memory_order_acquire);
  }
  void leave() {
    if (state_.fetch_sub(kRunning, std::memory_order_seq_cst) != kRunning) bell_.ring();
  }
  Ticket enqueue(Work work, bool for_worker);
  bool head_can_run(bool worker) const HCCL_REQUIRES(mutex_);
  bool run_one(bool worker);
  void work_loop();

  // One bit for "something runs", and the length of the line above it.
  static constexpr std::uint32_t kRunning = 1;
  static constexpr std::uint32_t kInLine = 2;
  std::atomic<std::uint32_t> state_{0};
  mutable Mutex mutex_{LockLevel::kQueue};
  std::deque<Ticket> line_ HCCL_GUARDED_BY(mutex_);
  bool stopping_ HCCL_GUARDED_BY(mutex_) = false;
  Doorbell bell_;
  Thread worker_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::core
