#include "hccl/acl/devices.h"

#include <string>

#include "hccl/acl/failure.h"
#include "hccl/acl/stream.h"

namespace hccl::acl {
namespace {

// A context may end while threads have it: by a reset, or when it is destroyed.
std::weak_ptr<Context>& mine() {
  static thread_local std::weak_ptr<Context> context;
  return context;
}

}  // namespace

void Devices::set(int device) {
  const std::lock_guard lock(mutex_);
  Set& set = set_[device];
  if (set.times == 0) {
    set.context = std::make_shared<Context>(Context{device, nullptr, true});
    set.context->handle = contexts_.add(set.context);
  }
  ++set.times;
  mine() = set.context;
}

Status Devices::reset(int device, bool all) {
  const std::lock_guard lock(mutex_);
  const auto at = set_.find(device);
  if (at == set_.end()) {
    return failure(ACL_ERROR_RT_CONTEXT_NULL,
                   "deviceId " + std::to_string(device) + " is not set by any thread");
  }
  if (--at->second.times != 0 && !all) return {};
  static_cast<void>(contexts_.take(at->second.context->handle));
  set_.erase(at);
  return {};
}

Result<std::shared_ptr<Context>> Devices::current() const {
  if (auto context = mine().lock()) return context;
  return failure(ACL_ERROR_RT_CONTEXT_NULL,
                 "the calling thread has no device: aclrtSetDevice comes first");
}

int Devices::current_device() const {
  const auto context = mine().lock();
  return context ? context->device : Stream::kNoDevice;
}

aclrtContext Devices::create(int device) {
  auto context = std::make_shared<Context>(Context{device});
  mine() = context;
  // No caller knows the handle before this returns.
  Context& fresh = *context;
  fresh.handle = contexts_.add(std::move(context));
  return fresh.handle;
}

Status Devices::destroy(aclrtContext context) {
  return known(contexts_.take(context,
                              [](const Context& each) {
                                if (!each.is_default) return Status();
                                return bad("context is the default one of a device");
                              }))
      .status();
}

Status Devices::set_current(aclrtContext context) {
  HCCL_ASSIGN_OR_RETURN(const auto found, known(contexts_.get(context)));
  mine() = found;
  return {};
}

}  // namespace hccl::acl
