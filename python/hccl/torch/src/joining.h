#pragma once

#include <chrono>
#include <memory>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

/// HcclCommInitRootInfo on a thread of its own, so that who waits for it can give it up.
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
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace hccl::pytorch
