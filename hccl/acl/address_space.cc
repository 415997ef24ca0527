#include "hccl/acl/address_space.h"

#include <sys/mman.h>

#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "hccl/acl/failure.h"

namespace hccl::acl {
namespace {

constexpr std::size_t kGranule = memory::Heap::kGranule;

// Addresses of mappings that this file made. NOLINTNEXTLINE(performance-no-int-to-ptr)
void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Result<std::shared_ptr<Physical>> Physical::allocate(std::shared_ptr<memory::Heap> heap,
                                                     std::size_t bytes) {
  HCCL_ASSIGN_OR_RETURN(void* const memory, heap->allocate(bytes, kGranule));
  return std::shared_ptr<Physical>(new Physical(std::move(heap), memory, bytes));
}

Physical::~Physical() { static_cast<void>(heap_->free(memory_)); }

AddressSpace::~AddressSpace() {
  for (const auto& [at, memory] : mappings_) static_cast<void>(memory->heap().unmap(pointer(at)));
  for (const auto& [start, bytes] : reserved_) ::munmap(pointer(start), bytes);
}

Result<void*> AddressSpace::reserve(std::size_t bytes) {
  const Status none(Code::kOom, std::to_string(bytes) + " bytes of addresses are not to be had");
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kGranule) return none;
  bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  void* const area = ::mmap(nullptr, bytes + kGranule, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return none;
  // The addresses before and after the aligned part are released.
  const auto first = reinterpret_cast<std::uintptr_t>(area);
  const std::uintptr_t start = (first + kGranule - 1) / kGranule * kGranule;
  if (start != first) ::munmap(area, start - first);
  ::munmap(pointer(start + bytes), first + kGranule - start);
  const MutexLock lock(mutex_);
  reserved_.emplace(start, bytes);
  return pointer(start);
}

Status AddressSpace::release(void* start) {
  const MutexLock lock(mutex_);
  const auto at = reserved_.find(reinterpret_cast<std::uintptr_t>(start));
  if (at == reserved_.end()) return bad("virPtr is not the start of a reservation");
  const auto mapped = mappings_.lower_bound(at->first);
  if (mapped != mappings_.end() && mapped->first < at->first + at->second) {
    return bad("virPtr: memory is mapped in the reservation, aclrtUnmapMem comes first");
  }
  if (::munmap(start, at->second) != 0) {
    return failure(ACL_ERROR_RT_MEMORY_FREE, "virPtr: the system refused to take the addresses");
  }
  reserved_.erase(at);
  return {};
}

Status AddressSpace::map(void* at, std::shared_ptr<Physical> memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const MutexLock lock(mutex_);
  const auto next = reserved_.upper_bound(address);
  if (next == reserved_.begin()) return bad("virPtr is not inside a reservation");
  const auto& [start, bytes] = *std::prev(next);
  if (address - start >= bytes || memory->bytes() > bytes - (address - start)) {
    return bad("virPtr: " + std::to_string(memory->bytes()) +
               " bytes do not lie inside a reservation");
  }
  HCCL_RETURN_IF_ERROR(memory->heap().map(at, memory->bytes(), memory->offset()));
  mappings_.emplace(address, std::move(memory));
  return {};
}

Status AddressSpace::unmap(void* at) {
  const MutexLock lock(mutex_);
  const auto found = mappings_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == mappings_.end()) return bad("virPtr: nothing was mapped there");
  HCCL_RETURN_IF_ERROR(found->second->heap().unmap(at));
  mappings_.erase(found);
  return {};
}

std::span<std::byte> AddressSpace::block_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const MutexLock lock(mutex_);
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return {};
  const auto& [start, mapped] = *std::prev(next);
  if (address - start >= mapped->bytes()) return {};
  return {static_cast<std::byte*>(pointer(start)), mapped->bytes()};
}

}  // namespace hccl::acl
