#pragma once

#include <chrono>
#include <functional>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

/// A call that makes a communicator, on a thread of its own, so that the waiting thread can give it
/// up.
class Joining {
 public:
  using Call = std::function<HcclResult(HcclComm*)>;
  /// `operation` is a literal, for errors.
  Joining(const char* operation, Call call);
  /// Gives up what is under way: a communicator that still comes of it is aborted.
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  /// Whether it has ended within this time, well or not.
  bool ends_within(std::chrono::milliseconds patience);
  /// What the call returned, once it has ended.
  HcclResult result() const { return HcclRequestWait(request_, 0, nullptr); }
  /// The communicator, once it has ended; throws if it has failed.
  HcclComm take();

 private:
  struct State;
  const char* const operation_;
  State* state_ = nullptr;  // shared with the thread; the later one to leave deletes it
  HcclRequest request_ = nullptr;
};

}  // namespace hccl::pytorch
