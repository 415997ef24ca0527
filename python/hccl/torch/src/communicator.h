#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

class Communicator;

/// Some ranks of a communicator, which is null if they are not known to be any.
struct Part {
  std::shared_ptr<Communicator> whole;
  std::vector<uint32_t> ranks;
  std::string name;  // of no other living part
};

/// The communicator of a process group.
class Communicator {
 public:
  /// A part needs no store, and no thread before its first asynchronous operation. Other ranks join
  /// a world of their own: rank 0 puts the root info into the store, which is the group's own.
  Communicator(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout,
               const Part& part);
  ~Communicator() { leave(std::chrono::milliseconds(0)); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Throws once the group is being left.
  HcclComm handle() const;
  /// The limit of each operation that begins from now on; 0: none. By the thread that runs them.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Ends what is under way on all ranks. Any thread, at any time.
  void abort(const char* reason) noexcept;
  /// Around each message: messages are apart from collectives, and have no order.
  HcclComm begin_message();
  void end_message();
  /// Waits until nothing is under way; false if collectives or messages take longer than `limit`,
  /// 0: none.
  bool drain(std::chrono::milliseconds limit) noexcept;
  /// Leaves, when nothing is under way any more: operations that take longer than `patience` are
  /// aborted for the reason. A callback that takes longer than `grace` after that, 0: none, goes
  /// on, and the communicator stays as it is.
  void end(std::chrono::milliseconds patience, std::chrono::milliseconds grace,
           const char* reason) noexcept;

 private:
  struct Shared;
  static std::shared_ptr<Shared> divide(const Part& part, std::chrono::milliseconds timeout);
  void leave(std::chrono::milliseconds limit) noexcept;

  std::timed_mutex ending_;  // one thread at a time ends the group
  std::mutex leaving_;       // nobody aborts what has been left
  std::atomic<bool> left_ = false;
  std::shared_ptr<Shared> shared_;          // null: left
  std::atomic<HcclComm> handle_ = nullptr;  // null: left
  std::mutex mutex_;
  std::condition_variable message_ended_;
  std::size_t messages_ = 0;               // under way
  std::chrono::milliseconds timeout_{-1};  // the one that is set
};

}  // namespace hccl::pytorch
