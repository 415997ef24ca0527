#include "queue.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <pthread.h>

#include <csignal>
#include <utility>

namespace hccl::pytorch {
namespace {

void perform(const Task& task) {
  std::exception_ptr failure;
  try {
    task.run();
  } catch (...) {
    failure = std::current_exception();
  }
  task.work->complete(std::move(failure));
}

}  // namespace

void Queue::submit(Task task, bool caller_waits) {
  std::unique_lock lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, !stopped_,
                   "hccl: the process group has been shut down or aborted");
  if (caller_waits && !running_ && waiting_.empty()) {
    running_ = true;
    lock.unlock();
    perform(task);
    leave();
    return;
  }
  if (!worker_) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are for the program's own threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_ = std::make_unique<std::thread>([self = shared_from_this()] { self->serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  waiting_.push_back(std::move(task));
  lock.unlock();
  changed_.notify_all();
}

void Queue::leave() {
  std::lock_guard lock(mutex_);
  running_ = false;
  changed_.notify_all();
}

void Queue::serve() {
  c10::setThreadName("hccl_torch");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !running_ && (stopped_ || !waiting_.empty()); });
    if (waiting_.empty()) return;
    {
      const Task task = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = true;
      lock.unlock();
      perform(task);
    }  // its tensors are freed before others run
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

bool Queue::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (worker_ && worker_->get_id() == std::this_thread::get_id()) return true;
  return changed_.wait_for(lock, limit, [this] { return !running_ && waiting_.empty(); });
}

void Queue::stop() {
  std::unique_ptr<std::thread> worker;
  {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    if (!worker_) changed_.wait(lock, [this] { return !running_; });
    worker = std::move(worker_);
  }
  if (!worker) return;
  if (worker->get_id() == std::this_thread::get_id()) {
    worker->detach();  // the last reference was dropped in a callback of a future
  } else {
    worker->join();
  }
}

}  // namespace hccl::pytorch
