// Operations of one communicator, in issue order. Whoever has time runs them: the caller who waits,
// or the worker thread; one at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "hccl/base/status.h"
#include "hccl/base/wait.h"

namespace hccl::core {

class OpQueue {
 public:
  using Work = std::function<Status()>;
  class Op;
  using Ticket = std::shared_ptr<Op>;

  OpQueue() = default;
  /// Waits for what runs; what has not begun is dropped.
  ~OpQueue();
  OpQueue(const OpQueue&) = delete;
  OpQueue& operator=(const OpQueue&) = delete;

  /// Runs the work on the caller's thread, after everything issued before it.
  Status run(Work work);
  /// Puts the work in line for the worker thread (started at the first call) and returns at once.
  Ticket submit(Work work);
  /// Puts the work in line for whoever waits for it; the worker does not touch it.
  Ticket defer(Work work);
  /// The result of a ticket. Runs what the worker has not begun rather than wait for it.
  Status wait(const Ticket& ticket);
  bool done(const Ticket& ticket) const;
  /// Work is in line or running.
  bool busy() const;

 private:
  Ticket enqueue(Work work, bool for_worker);
  bool run_one(bool worker);
  void work_loop();

  mutable std::mutex mutex_;
  std::deque<Ticket> line_;
  bool running_ = false;
  bool stopping_ = false;
  Bell bell_;
  std::thread worker_;
};

}  // namespace hccl::core
