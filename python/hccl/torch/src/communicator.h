#pragma once

#include <chrono>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

/// The communicator of a process group.
class Communicator {
 public:
  /// Joins: rank 0 puts the root info into the store, which is the group's own.
  Communicator(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);
  ~Communicator() { leave(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  HcclComm handle() const { return handle_; }
  /// The limit of each operation that begins from now on; 0: none. By the thread that runs them.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Ends what is under way on all ranks. Any thread, at any time.
  void abort(const char* reason) noexcept;
  /// Nothing may be under way, and nothing may begin any more.
  void leave() noexcept;

 private:
  std::mutex leaving_;  // nobody aborts what has been left
  HcclComm handle_ = nullptr;
  std::chrono::milliseconds timeout_{-1};  // the one that is set
};

}  // namespace hccl::pytorch
