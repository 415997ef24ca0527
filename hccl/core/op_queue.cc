#include "hccl/core/op_queue.h"

namespace hccl::core {

class OpQueue::Op {
 public:
  Work work;
  Status result;
  bool for_worker = false;
  bool done = false;
};

namespace {
constexpr WaitPolicy kSleepAtOnce{.spin = std::chrono::nanoseconds(0)};
}

OpQueue::~OpQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    line_.clear();
  }
  bell_.ring();
  if (worker_.joinable()) worker_.join();
}

OpQueue::Ticket OpQueue::enqueue(Work work, bool for_worker) {
  auto op = std::make_shared<Op>();
  op->work = std::move(work);
  op->for_worker = for_worker;
  std::lock_guard lock(mutex_);
  line_.push_back(op);
  return op;
}

// Runs the head of the line if nobody else runs anything. False if there was nothing to do.
bool OpQueue::run_one(bool worker) {
  Ticket op;
  {
    std::lock_guard lock(mutex_);
    if (running_ || line_.empty() || (worker && !line_.front()->for_worker)) return false;
    op = line_.front();
    line_.pop_front();
    running_ = true;
  }
  Status result = op->work();
  {
    std::lock_guard lock(mutex_);
    op->result = std::move(result);
    op->done = true;
    running_ = false;
  }
  bell_.ring();
  return true;
}

Status OpQueue::run(Work work) {
  {
    // The usual case: nothing in line, nothing running.
    std::unique_lock lock(mutex_);
    if (!running_ && line_.empty()) {
      running_ = true;
      lock.unlock();
      Status result = work();
      lock.lock();
      running_ = false;
      lock.unlock();
      bell_.ring();
      return result;
    }
  }
  return wait(enqueue(std::move(work), false));
}

OpQueue::Ticket OpQueue::submit(Work work) {
  Ticket op = enqueue(std::move(work), true);
  {
    std::lock_guard lock(mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { work_loop(); });
  }
  bell_.ring();
  return op;
}

OpQueue::Ticket OpQueue::defer(Work work) { return enqueue(std::move(work), false); }

Status OpQueue::wait(const Ticket& ticket) {
  while (!done(ticket)) {
    if (run_one(false)) continue;
    static_cast<void>(hccl::wait(
        [&] {
          std::lock_guard lock(mutex_);
          return ticket->done || (!running_ && !line_.empty());
        },
        Deadline::never(), nullptr, bell_, kSleepAtOnce));
  }
  std::lock_guard lock(mutex_);
  return ticket->result;
}

bool OpQueue::done(const Ticket& ticket) const {
  std::lock_guard lock(mutex_);
  return ticket->done;
}

bool OpQueue::busy() const {
  std::lock_guard lock(mutex_);
  return running_ || !line_.empty();
}

void OpQueue::work_loop() {
  for (;;) {
    if (run_one(true)) continue;
    bool stop = false;
    static_cast<void>(hccl::wait(
        [&] {
          std::lock_guard lock(mutex_);
          stop = stopping_;
          return stop || (!running_ && !line_.empty() && line_.front()->for_worker);
        },
        Deadline::never(), nullptr, bell_, kSleepAtOnce));
    if (stop) return;
  }
}

}  // namespace hccl::core
