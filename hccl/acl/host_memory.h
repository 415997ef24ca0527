// Memory of the process that is not device memory: memory of aclrtMallocHost, and memory of the
// program that the program registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class HostMemory {
 public:
  /// `forked`: whether the process is a forked child. If so, free() and strike() accept any
  /// address, because the memory may be the parent's.
  explicit HostMemory(bool forked) : forked_(forked) {}
  ~HostMemory();
  /// Allocates memory, 64-byte aligned. Fails with kOom if no memory is left.
  Result<void*> allocate(std::size_t bytes);
  /// Frees memory, and ends registrations inside it. PARAM_INVALID: not a live allocation of
  /// allocate().
  Status free(void* memory);
  /// Returns the live allocation that contains this address; empty if none does.
  std::span<std::byte> block_of(const void* memory);

  /// Registers memory that the program owns. mapped() finds the memory only if `mapped` is set.
  /// Fails with PARAM_INVALID, or with ALREADY_REGISTERED if some of the bytes are registered.
  Status enter(void* memory, std::uint64_t bytes, bool mapped);
  /// Fails with NOT_REGISTERED if no registration begins at this address.
  Status strike(void* memory);
  bool mapped(const void* memory);

 private:
  struct Registered {
    std::uint64_t bytes = 0;
    bool mapped = false;
  };
  const bool forked_;
  Mutex mutex_;
  std::map<std::uintptr_t, std::span<std::byte>> live_ HCCL_GUARDED_BY(mutex_);  // by address
  std::map<std::uintptr_t, Registered> registered_ HCCL_GUARDED_BY(mutex_);      // by address
};

}  // namespace hccl::acl
