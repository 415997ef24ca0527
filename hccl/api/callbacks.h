// The callbacks of HcclCommRegCommStateCallback.
#pragma once

#include <string>
#include <vector>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {

/// Every member is safe to use from any thread, also from callbacks.
class StateCallbacks {
 public:
  /// Adds a callback with a name. If the name is known, replaces the old callback, and the name
  /// keeps its place in the order.
  void add(std::string name, HcclCommStateCallback callback, void* args);
  /// Calls all callbacks, in order, on this thread. Stops at the first failure and returns that
  /// failure.
  Status call(HcclComm comm, HcclCommStatePhase phase) const;

 private:
  struct Callback {
    std::string name;
    HcclCommStateCallback function;
    void* args;
  };
  mutable Mutex mutex_;
  std::vector<Callback> all_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::api
