#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace hccl::pytorch {

/// The sends and receives of a process group that are under way. They are apart from its queue: the
/// library matches them by tag and completes them on a thread of its own.
class Messages {
 public:
  /// Throws after stop().
  void begin();
  void end();
  /// Waits until none is under way; false after the limit.
  bool drain(std::chrono::milliseconds limit);
  /// Refuses more.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  int under_way_ = 0;
  bool stopped_ = false;
};

}  // namespace hccl::pytorch
