#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
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
};

/// Runs the operations of a process group one at a time, in the order of the calls. If the caller
/// would wait anyway and nothing is before it, the operation runs on the caller's thread. Otherwise
/// a worker thread runs it, which the first such operation starts.
class Queue final : public std::enable_shared_from_this<Queue> {
 public:
  void submit(Task task, bool caller_waits);
  /// Waits until nothing is under way; false after the limit.
  bool drain(std::chrono::milliseconds limit);
  /// Refuses more, and returns when what is under way has ended. Must be called before the end.
  void stop();

 private:
  void serve();
  void leave();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool running_ = false;
  bool stopped_ = false;
  std::unique_ptr<std::thread> worker_;
};

}  // namespace hccl::pytorch
