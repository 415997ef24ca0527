#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "work.h"

namespace hccl::pytorch {

/// An operation and what does it. The function keeps the tensors alive: callers drop their Work.
struct Task {
  c10::intrusive_ptr<Work> work;
  std::function<void()> run;
  uint64_t place = 0;                    // set by submit()
  std::exception_ptr failure = nullptr;  // of run()
};

/// Runs the operations of a process group one at a time, in the order of the calls. If the caller
/// would wait anyway and nothing is before it, the operation runs on the caller's thread. Otherwise
/// a worker thread runs it, which the first such operation starts.
///
/// Callbacks of futures run on the worker, too, one behind the other, and may issue operations and
/// wait for them. Such an operation has its place where the future was asked for: there the
/// caller's thread issues it on ranks where the future is complete by then. So the order is the
/// same on all ranks.
class Queue final : public std::enable_shared_from_this<Queue> {
 public:
  void submit(Task task, bool caller_waits);
  /// If this thread is the worker that the operation waits for, runs it now, behind those before.
  static void before_waiting_for(const Work& work);
  /// Waits until nothing is under way; false after the limit.
  bool drain(std::chrono::milliseconds limit);
  /// Refuses more, and returns when what is under way has ended. Must be called before the end.
  void stop();

 private:
  void serve();
  void run_first(std::unique_lock<std::mutex>& lock);
  void run_to(const Work& work);
  void complete_first();
  void leave();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;  // by place
  std::deque<Task> ended_;    // the worker's: run while a callback waited, and to be completed
  bool running_ = false;
  bool stopped_ = false;
  std::unique_ptr<std::thread> worker_;
};

}  // namespace hccl::pytorch
