// Objects that C programs hold by handle. A destroyed or invented handle is an error, never a
// crash: handles are numbers that no address can be and that are never given out twice.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "hccl/base/status.h"

namespace hccl::api {

/// Every member is safe to use from any thread. An object lives until its handle is taken back and
/// the last call that found it has returned.
template <class T>
class Handles {
 public:
  using Object = std::shared_ptr<T>;

  /// `argument` names the handle in the texts of errors; `kind` is different for each table.
  Handles(std::string argument, std::uint8_t kind)
      : argument_(std::move(argument)), next_((kMark | kind) << kNumberBits) {}

  void* add(Object object) {
    const std::unique_lock lock(mutex_);
    // Never an address, and nobody follows it. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const handle = reinterpret_cast<void*>(++next_);
    all_.emplace(handle, std::move(object));
    return handle;
  }

  /// kPtr: null. kPara: not a handle of this table, or not any more.
  Result<Object> get(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto at = all_.find(handle);
    if (at == all_.end()) return unknown(handle);
    return at->second;
  }

  /// Takes the handle out of use if `allowed` says success; else gives what it says.
  template <class Allowed>
  Result<Object> take(const void* handle, Allowed&& allowed) {
    const std::unique_lock lock(mutex_);
    const auto at = all_.find(handle);
    if (at == all_.end()) return unknown(handle);
    HCCL_RETURN_IF_ERROR(allowed(*at->second));
    Object object = std::move(at->second);
    all_.erase(at);
    return object;
  }

 private:
  static constexpr int kNumberBits = 40;
  static constexpr std::uintptr_t kMark = 0xACC100;  // with these top bits nothing is an address

  Status unknown(const void* handle) const {
    if (handle == nullptr) return Status(Code::kPtr, argument_ + " is null");
    return Status(Code::kPara, argument_ + " is no handle, or was destroyed already");
  }

  std::string argument_;
  mutable std::shared_mutex mutex_;
  std::uintptr_t next_;
  std::unordered_map<const void*, Object> all_;
};

}  // namespace hccl::api
