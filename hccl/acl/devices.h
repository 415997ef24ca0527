// Devices and contexts, and the device of each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/table.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::acl {

/// A context, which gives a device to a thread.
struct Context {
  int device;
  aclrtContext handle = nullptr;  // set before another thread sees the context
  bool is_default = false;
};

/// Every member is safe to use from any thread. The caller has checked device numbers.
class Devices {
 public:
  /// Called in a forked child; see Table.
  void follow(const Devices& parent) { contexts_.follow(parent.contexts_); }
  /// Makes the device's default context the calling thread's context.
  void set(int device);
  /// Undoes one call of set() or, if `all`, all of them. Fails with CONTEXT_NULL if the device is
  /// not set.
  Status reset(int device, bool all);
  /// Returns the calling thread's context. CONTEXT_NULL: the thread has none.
  Result<std::shared_ptr<Context>> current() const;
  /// Returns the calling thread's device, or Stream::kNoDevice.
  int current_device() const;

  aclrtContext create(int device);
  Status destroy(aclrtContext context);
  Status set_current(aclrtContext context);

  void set_overflow_mode(aclrtFloatOverflowMode mode) { overflow_mode_ = mode; }
  aclrtFloatOverflowMode overflow_mode() const { return overflow_mode_; }

 private:
  struct Set {
    std::shared_ptr<Context> context;
    std::uint64_t times = 0;
  };

  Mutex mutex_{LockLevel::kDevice};
  std::map<int, Set> set_ HCCL_GUARDED_BY(mutex_);  // devices in use
  Table<Context> contexts_{"context", 4};
  std::atomic<aclrtFloatOverflowMode> overflow_mode_{ACL_RT_OVERFLOW_MODE_SATURATION};
};

}  // namespace hccl::acl
