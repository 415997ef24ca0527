// Addresses that programs reserve, and physical memory that they map there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/memory/heap.h"

namespace hccl::acl {

/// Granules of the device heap. They are freed when neither a handle nor a mapping holds them.
class Physical {
 public:
  static Result<std::shared_ptr<Physical>> allocate(std::shared_ptr<memory::Heap> heap,
                                                    std::size_t bytes);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  memory::Heap& heap() const { return *heap_; }
  std::uint64_t offset() const {
    return static_cast<std::uint64_t>(static_cast<std::byte*>(memory_) - heap_->base());
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Physical(std::shared_ptr<memory::Heap> heap, void* memory, std::size_t bytes)
      : heap_(std::move(heap)), memory_(memory), bytes_(bytes) {}

  const std::shared_ptr<memory::Heap> heap_;
  void* const memory_;
  const std::size_t bytes_;
};

/// Every member is safe to use from any thread. Addresses come from the program and are checked.
class AddressSpace {
 public:
  ~AddressSpace();

  /// Reserves inaccessible addresses: whole granules of the heap, aligned to a granule.
  Result<void*> reserve(std::size_t bytes);
  /// Fails with PARAM_INVALID if no reservation begins here, or if memory is mapped in the
  /// reservation.
  Status release(void* start);
  /// Maps all of the memory at these addresses and keeps it alive. PARAM_INVALID: the addresses are
  /// not inside one reservation, not on a page, or mapped already.
  Status map(void* at, std::shared_ptr<Physical> memory);
  /// Fails with PARAM_INVALID if nothing was mapped at exactly this address.
  Status unmap(void* at);
  /// Returns the mapping that contains this address; empty if none does.
  std::span<std::byte> block_of(const void* memory);

 private:
  Mutex mutex_{LockLevel::kDevice};
  std::map<std::uintptr_t, std::size_t> reserved_ HCCL_GUARDED_BY(mutex_);  // start, bytes
  std::map<std::uintptr_t, std::shared_ptr<Physical>> mappings_
      HCCL_GUARDED_BY(mutex_);  // by address
};

}  // namespace hccl::acl
