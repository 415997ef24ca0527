#include "queue.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "interpreter.h"

namespace hccl::pytorch {
namespace {

// What this thread is at: the queue whose worker it is, and the work whose callbacks it runs.
thread_local Queue* served = nullptr;
thread_local const Work* completing = nullptr;

void run(Task& task) {
  try {
    task.run();
  } catch (...) {
    task.failure = std::current_exception();
  }
}

void complete(Task& task) {
  const Work* const outer = std::exchange(completing, task.work.get());
  task.work->complete(std::move(task.failure));
  completing = outer;
}

}  // namespace

void Queue::submit(Task task, bool caller_waits) {
  std::unique_lock lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, !stopped_,
                   "hccl: the process group has been shut down or aborted");
  if (caller_waits && !running_ && waiting_.empty()) {
    running_ = true;
    lock.unlock();
    run(task);
    complete(task);
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
  task.place = served == this && completing != nullptr ? completing->asked() : now();
  const auto behind = std::ranges::upper_bound(waiting_, task.place, {}, &Task::place);
  waiting_.insert(behind, std::move(task));
  lock.unlock();
  changed_.notify_all();
}

void Queue::leave() {
  std::lock_guard lock(mutex_);
  running_ = false;
  changed_.notify_all();
}

void Queue::before_waiting_for(const Work& work) {
  if (served == nullptr) return;
  const WithoutInterpreterLock unlocked;
  served->run_to(work);
}

// Operations before it are run, but completed later: no callback runs inside another.
void Queue::run_to(const Work& work) {
  const auto is_for_it = [&](const Task& task) { return task.work.get() == &work; };
  std::unique_lock lock(mutex_);
  while (std::ranges::any_of(waiting_, is_for_it)) run_first(lock);
  lock.unlock();
  const auto found = std::ranges::find_if(ended_, is_for_it);
  if (found == ended_.end()) return;
  std::rotate(ended_.begin(), found, found + 1);
  complete_first();
}

void Queue::run_first(std::unique_lock<std::mutex>& lock) {
  Task task = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  run(task);
  ended_.push_back(std::move(task));
  lock.lock();
}

void Queue::complete_first() {
  Task task = std::move(ended_.front());
  ended_.pop_front();
  complete(task);
}

void Queue::serve() {
  c10::setThreadName("hccl_torch");
  served = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !running_ && (stopped_ || !waiting_.empty()); });
    if (waiting_.empty()) return;
    running_ = true;
    run_first(lock);
    lock.unlock();
    while (!ended_.empty()) complete_first();  // their tensors are freed before others run
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
