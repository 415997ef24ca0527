#include "hccl/api/registered_memory.h"

#include <limits>

#include "hccl/api/overlaps.h"

namespace hccl::api {
namespace {

using Ranges = std::map<std::uintptr_t, std::size_t>;

Status bad(std::string text) { return Status(Code::kPara, std::move(text)); }

bool overlaps(const Ranges& blocks, std::uintptr_t at, std::size_t size) {
  const auto next = blocks.lower_bound(at);
  if (next != blocks.end() && next->first - at < size) return true;
  if (next == blocks.begin()) return false;
  const auto before = std::prev(next);
  return at - before->first < before->second;
}

// Whether all bytes lie in a single one of the blocks.
bool within(const Ranges& blocks, std::uintptr_t at, std::size_t size) {
  const auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return false;
  const auto [start, length] = *std::prev(next);
  return at - start < length && size <= length - (at - start);
}

}  // namespace

Status RegisteredMemory::check(const void* at, std::uint64_t size, const char* what) {
  if (size == 0) return bad("size is 0");
  if (size <= std::numeric_limits<std::uintptr_t>::max() - address(at)) return {};
  return bad("size is " + std::to_string(size) + ", more than the addresses after " + what);
}

Status RegisteredMemory::set_range(HcclComm comm, void* base, std::size_t size) {
  HCCL_RETURN_IF_ERROR(check(base, size, "baseVirPtr"));
  const MutexLock lock(mutex_);
  Ranges& ranges = kept_[comm].ranges;
  if (overlaps(ranges, address(base), size)) {
    return bad("baseVirPtr overlaps a range that is set already");
  }
  ranges.emplace(address(base), size);
  return {};
}

Status RegisteredMemory::unset_range(HcclComm comm, void* base) {
  const MutexLock lock(mutex_);
  Kept& kept = kept_[comm];
  const auto at = kept.ranges.find(address(base));
  if (at == kept.ranges.end()) return bad("baseVirPtr is not the start of a range that is set");
  if (overlaps(kept.active, at->first, at->second)) {
    return bad("baseVirPtr has active memory: HcclCommDeactivateCommMemory comes first");
  }
  kept.ranges.erase(at);
  return {};
}

Status RegisteredMemory::activate(HcclComm comm, void* at, std::size_t size) {
  HCCL_RETURN_IF_ERROR(check(at, size, "virPtr"));
  const MutexLock lock(mutex_);
  Kept& kept = kept_[comm];
  if (!within(kept.ranges, address(at), size)) {
    return bad("virPtr is not in a range that HcclCommSetMemoryRange set");
  }
  if (overlaps(kept.active, address(at), size)) {
    return bad("virPtr overlaps memory that is active already");
  }
  kept.active.emplace(address(at), size);
  return {};
}

Status RegisteredMemory::deactivate(HcclComm comm, void* at) {
  const MutexLock lock(mutex_);
  if (kept_[comm].active.erase(address(at)) != 0) return {};
  return bad("virPtr is not the start of active memory");
}

HcclCommSymWindow RegisteredMemory::add_window(HcclComm comm, void* base, std::uint64_t size,
                                               bool own) {
  const MutexLock lock(mutex_);
  Kept& kept = kept_[comm];
  const std::uint64_t number = own ? 0 : ++kept.registered;
  kept.windows.push_back(
      windows_.add(std::make_shared<Window>(Window{comm, address(base), size, number})));
  return kept.windows.back();
}

Result<RegisteredMemory::Window> RegisteredMemory::window(HcclCommSymWindow handle) const {
  HCCL_ASSIGN_OR_RETURN(const auto use, windows_.get(handle));
  return *use;
}

Status RegisteredMemory::remove_window(HcclCommSymWindow handle) {
  HCCL_ASSIGN_OR_RETURN(const auto taken,
                        windows_.take(handle, [](const Window&) { return Status(); }));
  const MutexLock lock(mutex_);
  std::erase(kept_[taken->comm].windows, handle);
  return {};
}

Result<RegisteredMemory::Place> RegisteredMemory::find(HcclComm comm, const void* at,
                                                       std::size_t size) const {
  const MutexLock lock(mutex_);
  if (const auto kept = kept_.find(comm); kept != kept_.end()) {
    const auto& windows = kept->second.windows;
    for (auto handle = windows.rbegin(); handle != windows.rend(); ++handle) {
      const auto found = windows_.get(*handle);
      // Not ok: this rank removes the window. 0: memory of this rank alone.
      if (!found.ok() || (*found)->number == 0) continue;
      const Window& window = **found;
      const std::uintptr_t offset = address(at) - window.base;
      if (offset < window.size && size <= window.size - offset) return Place{*handle, offset};
    }
  }
  return Status(Code::kNotFound, "ptr is in no window of comm");
}

void RegisteredMemory::forget(HcclComm comm) {
  const MutexLock lock(mutex_);
  const auto kept = kept_.find(comm);
  if (kept == kept_.end()) return;
  for (const HcclCommSymWindow handle : kept->second.windows) {
    static_cast<void>(windows_.take(handle, [](const Window&) { return Status(); }));
  }
  kept_.erase(kept);
}

}  // namespace hccl::api
