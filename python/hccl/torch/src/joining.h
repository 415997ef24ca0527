#pragma once

#include <chrono>
#include <functional>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

/// A call that makes a communicator, on a thread of its own, so that the waiting thread can give
/// the call up.
class Joining {
 public:
  using Call = std::function<HcclResult(HcclComm*)>;
  /// `operation` is a literal, for errors.
  Joining(const char* operation, Call call);
  /// Gives up a running call. If the call makes a communicator later, that communicator is aborted.
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  /// Whether the call ends within this time, with success or failure.
  bool ends_within(std::chrono::milliseconds patience);
  /// The result of the call, once it has ended.
  HcclResult result() const { return HcclRequestWait(request_, 0, nullptr); }
  /// The communicator, once the call has ended. Throws if the call has failed.
  HcclComm take();

 private:
  struct State;
  const char* const operation_;
  State* state_ = nullptr;  // shared with the thread; the last user deletes it
  HcclRequest request_ = nullptr;
};

}  // namespace hccl::pytorch
