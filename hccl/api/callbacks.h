// The callbacks of HcclCommRegCommStateCallback.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {

/// Every member is safe to use from any thread, also from callbacks.
class StateCallbacks {
 public:
  /// A name that is known gets another callback, and keeps its place.
  void add(std::string name, HcclCommStateCallback callback, void* args);
  /// Calls all of them, in order, on this thread; the first failure ends it, and is the result.
  Status call(HcclComm comm, HcclCommStatePhase phase) const;

 private:
  struct Callback {
    std::string name;
    HcclCommStateCallback function;
    void* args;
  };
  mutable std::mutex mutex_;
  std::vector<Callback> all_;
};

}  // namespace hccl::api
