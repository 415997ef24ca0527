// Memory of the process that is not device memory: for aclrtMallocHost, and the program's own
// memory that it registers.
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
  /// `forked`: the process is a forked child, where free() and strike() accept any address, because
  /// the memory may be its parent's.
  explicit HostMemory(bool forked) : forked_(forked) {}
  ~HostMemory();
  /// 64-byte aligned. kOom.
  Result<void*> allocate(std::size_t bytes);
  /// PARAM_INVALID: not a live allocation of allocate(). Ends registrations inside it.
  Status free(void* memory);
  /// The live allocation that contains this address; empty if none does.
  std::span<std::byte> block_of(const void* memory);

  /// Registers memory of the program, which stays the program's. `mapped`: mapped() shall find it.
  /// PARAM_INVALID; ALREADY_REGISTERED: the bytes overlap registered ones.
  Status enter(void* memory, std::uint64_t bytes, bool mapped);
  /// NOT_REGISTERED: no registration begins there.
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
