// Private memory of the process, as aclrtMallocHost gives it.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_set>

#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class HostMemory {
 public:
  ~HostMemory();
  /// 64-byte aligned. kOom.
  Result<void*> allocate(std::size_t bytes);
  /// PARAM_INVALID: nothing that allocate() gave and is not free yet.
  Status free(void* memory);

 private:
  std::mutex mutex_;
  std::unordered_set<void*> live_;
};

}  // namespace hccl::acl
