// Objects that programs hold by handle. Handles are numbers that cannot be addresses and are never
// used twice, so a destroyed or invented handle is an error and never a crash. Unlike a
// communicator's handle, a handle here may be removed while calls still use its object: if a stream
// is destroyed while another thread synchronizes it, the stream ends when that call returns.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
template <class T>
class Table {
 public:
  using Object = std::shared_ptr<T>;

  /// `argument` names the handle in the texts of errors; `kind` is different for each table.
  Table(std::string argument, std::uint8_t kind)
      : argument_(std::move(argument)), next_((kMark | kind) << kNumberBits) {}

  /// Called in a forked child: handles of the parent's table are never handles of this table. Takes
  /// no lock, because a thread of the parent may have held the lock at the fork.
  void follow(const Table& parent) { next_ = of_parent_ = parent.next_; }

  void* add(Object object) {
    const std::unique_lock lock(mutex_);
    const auto at = all_.emplace(next_ + 1, std::move(object)).first;
    ++next_;
    // Never an address, and never dereferenced. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<void*>(at->first);
  }

  /// Returns the object of a handle. kPtr: the handle is null. kPara: the handle is not, or no
  /// longer, in this table.
  Result<Object> get(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto at = all_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (at == all_.end()) return unknown(handle);
    return at->second;
  }

  /// Removes the handle if `allowed` returns success; else returns its failure.
  template <class Allowed>
  Result<Object> take(const void* handle, Allowed&& allowed) {
    const std::unique_lock lock(mutex_);
    const auto at = all_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (at == all_.end()) return unknown(handle);
    HCCL_RETURN_IF_ERROR(allowed(*at->second));
    Object object = std::move(at->second);
    all_.erase(at);
    return object;
  }
  Result<Object> take(const void* handle) {
    return take(handle, [](const T&) { return Status(); });
  }

  std::vector<Object> all() const {
    const std::shared_lock lock(mutex_);
    std::vector<Object> objects;
    for (const auto& [handle, object] : all_) objects.push_back(object);
    return objects;
  }

 private:
  static constexpr int kNumberBits = 40;
  static constexpr std::uintptr_t kMark = 0xACC200;  // no address has these top bits

  Status unknown(const void* handle) const {
    if (handle == nullptr) return Status(Code::kPtr, argument_ + " is null");
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (number >> kNumberBits == next_ >> kNumberBits && number <= of_parent_) {
      return Status(Code::kPara, argument_ +
                                     " is of the process that this one was forked from; a forked "
                                     "child has none of it");
    }
    return Status(Code::kPara, argument_ + " is no handle, or was destroyed already");
  }

  std::string argument_;
  mutable std::shared_mutex mutex_;
  std::uintptr_t next_;
  std::uintptr_t of_parent_ = 0;  // the last handle of the parent
  std::unordered_map<std::uintptr_t, Object> all_;
};

}  // namespace hccl::acl
