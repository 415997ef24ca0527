// Private memory of the process, for aclrtMallocHost.
#pragma once

#include <cstddef>
#include <unordered_set>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class HostMemory {
 public:
  /// `forked`: the process is a forked child, where free() accepts any address, because the memory
  /// may be its parent's.
  explicit HostMemory(bool forked) : forked_(forked) {}
  ~HostMemory();
  /// 64-byte aligned. kOom.
  Result<void*> allocate(std::size_t bytes);
  /// PARAM_INVALID: not a live allocation of allocate().
  Status free(void* memory);

 private:
  const bool forked_;
  Mutex mutex_;
  std::unordered_set<void*> live_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::acl
