#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <queue>
#include <string>

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// The operations of one group: a thread of its own makes the library's calls, one after the other,
/// so that waiting for other ranks holds no thread of TensorFlow.
class Queue {
 public:
  /// The queue of a group; made with its first operation, and never destroyed: TensorFlow may run
  /// ops until the process ends.
  static Queue& of(const std::string& group);

  void add(std::function<void()> operation);

 private:
  Queue();
  void run();

  std::mutex mutex_;
  std::condition_variable added_;
  std::queue<std::function<void()>> operations_;
};

}  // namespace hccl::tf
