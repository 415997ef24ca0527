#include "hccl/acl/host_memory.h"

#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>

#include "hccl/acl/failure.h"

namespace hccl::acl {
namespace {

constexpr std::size_t kAlignment = 64;

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

/// Returns the last entry of a map by address that begins at `address` or before; end() if there is
/// none.
template <class Map>
auto at_or_before(Map& map, std::uintptr_t address) {
  const auto next = map.upper_bound(address);
  return next == map.begin() ? map.end() : std::prev(next);
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [address, block] : live_) std::free(block.data());
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
  live_[address_of(memory)] = {static_cast<std::byte*>(memory), bytes};
  return memory;
}

Status HostMemory::free(void* memory) {
  const MutexLock lock(mutex_);
  const auto at = live_.find(address_of(memory));
  if (at == live_.end()) {
    return forked_ ? Status() : bad("hostPtr is nothing that aclrtMallocHost gave");
  }
  const auto& [first, block] = *at;
  registered_.erase(registered_.lower_bound(first), registered_.lower_bound(first + block.size()));
  live_.erase(at);
  std::free(memory);
  return {};
}

std::span<std::byte> HostMemory::block_of(const void* memory) {
  const MutexLock lock(mutex_);
  const auto at = at_or_before(live_, address_of(memory));
  if (at == live_.end() || address_of(memory) - at->first >= at->second.size()) return {};
  return at->second;
}

Status HostMemory::enter(void* memory, std::uint64_t bytes, bool mapped) {
  const std::uintptr_t address = address_of(memory);
  if (bytes == 0) return bad("size is 0");
  if (bytes > std::numeric_limits<std::uintptr_t>::max() - address) {
    return bad("size is more than there are addresses");
  }
  const MutexLock lock(mutex_);
  const auto last = at_or_before(registered_, address + bytes - 1);
  if (last != registered_.end() && last->first + last->second.bytes > address) {
    return failure(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                   "ptr: a part of the memory is registered already");
  }
  registered_[address] = {bytes, mapped};
  return {};
}

Status HostMemory::strike(void* memory) {
  const MutexLock lock(mutex_);
  if (registered_.erase(address_of(memory)) != 0 || forked_) return {};
  return failure(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "ptr: no registered memory begins there");
}

bool HostMemory::mapped(const void* memory) {
  const MutexLock lock(mutex_);
  const auto at = at_or_before(registered_, address_of(memory));
  return at != registered_.end() && address_of(memory) - at->first < at->second.bytes &&
         at->second.mapped;
}

}  // namespace hccl::acl
