#pragma once

#include <chrono>
#include <functional>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

/// A call that makes a communicator on a thread of its own, so that the waiting thread can abandon
/// the call.
class Joining {
 public:
  using Call = std::function<HcclResult(HcclComm*)>;
  /// `operation` is a literal, for errors.
  Joining(const char* operation, Call call);
  /// Abandons a running call. If the call makes a communicator later, that communicator is aborted.
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  /// Returns whether the call ends within this time, with success or failure.
  bool ends_within(std::chrono::milliseconds patience);
  /// Returns the result of the call, which must have ended.
  HcclResult result() const { return HcclRequestWait(request_, 0, nullptr); }
  /// Returns the communicator. The call must have ended. Throws if the call failed.
  HcclComm take();

 private:
  struct State;
  const char* const operation_;
  State* state_ = nullptr;  // shared with the thread; the last user deletes it
  HcclRequest request_ = nullptr;
};

}  // namespace hccl::pytorch
