#include "hccl/acl/devices.h"

#include <string>
#include <utility>

#include "hccl/acl/failure.h"
#include "hccl/acl/stream.h"

namespace hccl::acl {
namespace {

// The handle of the thread's context. A reset or aclrtDestroyContext may end the context earlier.
// The pointer has no destructor, because glibc needs memory to register a destructor, and ends the
// process if no memory is left.
const void*& mine() {
  static thread_local const void* context = nullptr;
  return context;
}

}  // namespace

void Devices::set(int device) {
  const MutexLock lock(mutex_);
  Set& set = set_[device];
  if (set.times == 0) {
    set.context = std::make_shared<Context>(Context{device, nullptr, true});
    set.context->handle = contexts_.add(set.context);
  }
  ++set.times;
  mine() = set.context->handle;
}

Status Devices::reset(int device, bool all) {
  const MutexLock lock(mutex_);
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
  if (mine() != nullptr) {
    if (auto context = contexts_.get(mine()); context.ok()) return std::move(*context);
  }
  return failure(ACL_ERROR_RT_CONTEXT_NULL,
                 "the calling thread has no device: aclrtSetDevice comes first");
}

int Devices::current_device() const {
  if (mine() == nullptr) return Stream::kNoDevice;
  const auto context = contexts_.get(mine());
  return context.ok() ? (*context)->device : Stream::kNoDevice;
}

aclrtContext Devices::create(int device) {
  auto context = std::make_shared<Context>(Context{device});
  // No caller knows the handle before this function returns.
  Context& fresh = *context;
  fresh.handle = contexts_.add(std::move(context));
  mine() = fresh.handle;
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
  HCCL_RETURN_IF_ERROR(known(contexts_.get(context)).status());
  mine() = context;
  return {};
}

}  // namespace hccl::acl
