#include "hccl/core/op_queue.h"

#include <algorithm>

#include "hccl/base/caught.h"

namespace hccl::core {

class OpQueue::Op {
 public:
  Work work;
  Status result;
  bool filled = false;
  bool for_worker = false;
  bool done = false;
};

OpQueue::~OpQueue() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    line_.clear();
  }
  bell_.ring();
  worker_.join();
}

OpQueue::Ticket OpQueue::enqueue(Work work, bool for_worker) {
  auto op = std::make_shared<Op>();
  op->filled = work != nullptr;
  op->work = std::move(work);
  op->for_worker = for_worker;
  const MutexLock lock(mutex_);
  line_.push_back(op);
  state_.fetch_add(kInLine, std::memory_order_seq_cst);
  return op;
}

bool OpQueue::head_can_run(bool worker) const {
  if (line_.empty() || (state_.load(std::memory_order_seq_cst) & kRunning) != 0) return false;
  const Op& head = *line_.front();
  return head.filled && (head.for_worker || !worker);
}

// Runs the head of the line if nothing runs. False if there was nothing to do.
bool OpQueue::run_one(bool worker) {
  Ticket op;
  {
    const MutexLock lock(mutex_);
    if (!head_can_run(worker)) return false;
    // enter() succeeds only while the line is empty, which it is not.
    op = line_.front();
    line_.pop_front();
    state_.fetch_sub(kInLine - kRunning, std::memory_order_seq_cst);
  }
  Status result;
  try {
    result = op->work();
  } catch (...) {
    result = caught();
  }
  {
    const MutexLock lock(mutex_);
    op->result = std::move(result);
    op->done = true;
  }
  state_.fetch_sub(kRunning, std::memory_order_seq_cst);
  bell_.ring();
  return true;
}

OpQueue::Ticket OpQueue::reserve() { return enqueue(nullptr, false); }

Status OpQueue::run(const Ticket& place, Work work) {
  {
    const MutexLock lock(mutex_);
    place->work = std::move(work);
    place->filled = true;
  }
  return wait(place);
}

void OpQueue::cancel(const Ticket& place) {
  {
    const MutexLock lock(mutex_);
    const auto at = std::find(line_.begin(), line_.end(), place);
    if (at == line_.end()) return;
    line_.erase(at);
    state_.fetch_sub(kInLine, std::memory_order_seq_cst);
  }
  bell_.ring();
}

OpQueue::Ticket OpQueue::submit(Work work) {
  {
    // First, as it may fail, and what is in line must be run.
    const MutexLock lock(mutex_);
    if (!worker_.started()) worker_ = Thread("hccl-queue", [this] { work_loop(); });
  }
  Ticket op = enqueue(std::move(work), true);
  bell_.ring();
  return op;
}

OpQueue::Ticket OpQueue::defer(Work work) { return enqueue(std::move(work), false); }

Status OpQueue::wait(const Ticket& ticket) {
  while (!done(ticket)) {
    if (run_one(false)) continue;
    const auto ready = [&] {
      const MutexLock lock(mutex_);
      return ticket->done || head_can_run(false);
    };
    static_cast<void>(Waiter{.policy = kSleepAtOnce}.until(ready, bell_));
  }
  const MutexLock lock(mutex_);
  return ticket->result;
}

bool OpQueue::done(const Ticket& ticket) const {
  const MutexLock lock(mutex_);
  return ticket->done;
}

bool OpQueue::busy() const { return state_.load(std::memory_order_acquire) != 0; }

void OpQueue::work_loop() {
  for (;;) {
    if (run_one(true)) continue;
    bool stop = false;
    const auto ready = [&] {
      const MutexLock lock(mutex_);
      stop = stopping_;
      return stop || head_can_run(true);
    };
    static_cast<void>(Waiter{.policy = kSleepAtOnce}.until(ready, bell_));
    if (stop) return;
  }
}

}  // namespace hccl::core
