#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

class Communicator;

/// Some ranks of the communicator `whole`. `whole` is null if no known communicator contains the
/// ranks.
struct Part {
  std::shared_ptr<Communicator> whole;
  std::vector<uint32_t> ranks;
  std::string name;        // no other living part of this process has this name
  bool same_name = false;  // all members have `name`; if false, they make parts in one order
};

/// The communicator of a process group.
class Communicator {
 public:
  /// Joins nothing, because the group has no communicator yet.
  Communicator() : missing_("reconfigure() makes the process group, and comes first") {
    left_ = true;
  }
  /// Joins. A part of another communicator needs no store, and no thread before its first
  /// asynchronous operation. If part.whole is null, the ranks join a world of their own: rank 0
  /// puts the root info into `store`, which must belong to this group alone.
  Communicator(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout,
               const Part& part);
  /// Makes a communicator of the parent's living ranks that are not in `excluded`. The parent may
  /// have failed, and is not needed afterwards.
  Communicator(Communicator& parent, const std::vector<uint32_t>& excluded);
  ~Communicator() { leave(std::chrono::milliseconds(0)); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns the world rank of each rank.
  std::vector<uint32_t> world_ranks() const;
  /// Throws once the group is leaving.
  HcclComm handle() const;
  /// Sets the time limit of each later operation; 0 means no limit. Called by the thread that runs
  /// operations.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Ends running operations on all ranks. Any thread may call it, at any time.
  void abort(const char* reason) noexcept;
  /// Runs the function after the operations submitted before, and waits for its end. Runs it on
  /// this thread if no operation is queued. Throws the function's exception.
  void run(const std::function<void()>& function);
  /// Called before each message; end_message() is called after it. Messages are independent of
  /// collectives and of each other.
  HcclComm begin_message();
  void end_message();
  /// Waits until no operation is running. Returns false if collectives or messages take longer than
  /// `limit`; 0 means no limit.
  bool drain(std::chrono::milliseconds limit) noexcept;
  /// Leaves when no operation is running. Operations that take longer than `patience` are aborted,
  /// with `reason`. If a callback then takes longer than `grace` (0: no limit), the callback
  /// continues, and the library's communicator is not destroyed.
  void end(std::chrono::milliseconds patience, std::chrono::milliseconds grace,
           const char* reason) noexcept;

 private:
  struct Shared;
  /// Null once the group has left.
  std::shared_ptr<Shared> shared();
  static std::shared_ptr<Shared> divide(const Part& part, std::chrono::milliseconds timeout);
  static std::shared_ptr<Shared> shrink(Communicator& parent,
                                        const std::vector<uint32_t>& excluded);
  void leave(std::chrono::milliseconds limit) noexcept;
  HcclResult submit_and_wait(HcclCall call, void* arg, std::chrono::milliseconds limit);

  const char* const missing_ = "the process group has been shut down or aborted";
  std::timed_mutex ending_;  // one thread at a time ends the group
  std::mutex leaving_;       // so that no thread aborts a destroyed communicator
  std::atomic<bool> left_ = false;
  std::shared_ptr<Shared> shared_;          // null: the group has left
  std::atomic<HcclComm> handle_ = nullptr;  // null: the group has left
  std::mutex mutex_;
  std::condition_variable message_ended_;
  std::size_t messages_ = 0;               // messages under way
  std::chrono::milliseconds timeout_{-1};  // the limit that is set now
};

}  // namespace hccl::pytorch
