#pragma once

#include <chrono>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

/// HcclCommInitRootInfo on a thread of its own, so that the waiting thread can give it up.
class Joining {
 public:
  Joining(const HcclRootInfo& info, int size, int rank);
  /// Gives up what is under way: a communicator that still comes of it is aborted.
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  /// Whether it has ended within this time, well or not.
  bool ends_within(std::chrono::milliseconds patience);
  /// The communicator, once it has ended; throws if it has failed.
  HcclComm take();

 private:
  struct State;
  State* state_ = nullptr;  // shared with the thread; the later one to leave deletes it
  HcclRequest request_ = nullptr;
};

}  // namespace hccl::pytorch
