#include "hccl/acl/host_memory.h"

#include <cstdlib>
#include <limits>
#include <string>

#include "hccl/acl/failure.h"

namespace hccl::acl {
namespace {
constexpr std::size_t kAlignment = 64;
}

HostMemory::~HostMemory() {
  for (void* const memory : live_) std::free(memory);
}

Result<void*> HostMemory::allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes <= std::numeric_limits<std::size_t>::max() - kAlignment) {
    memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  if (memory == nullptr) {
    return Status(Code::kOom, std::to_string(bytes) + " bytes of host memory are not to be had");
  }
  const MutexLock lock(mutex_);
  live_.insert(memory);
  return memory;
}

Status HostMemory::free(void* memory) {
  const MutexLock lock(mutex_);
  if (live_.erase(memory) == 0) {
    return forked_ ? Status() : bad("hostPtr is nothing that aclrtMallocHost gave");
  }
  std::free(memory);
  return {};
}

}  // namespace hccl::acl
