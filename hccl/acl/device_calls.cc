// The device and context functions.
#include <cstdint>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

Devices& devices() { return Runtime::get().devices(); }

Status synchronize_device(std::int32_t timeout) {
  if (timeout < -1) return bad("timeout is " + std::to_string(timeout));
  HCCL_ASSIGN_OR_RETURN(const auto context, devices().current());
  const Deadline deadline = deadline_of(timeout);
  Status first;
  for (const auto& stream : Runtime::get().streams().all()) {
    if (stream->device() != context->device) continue;
    Status status = timeout == -1 ? stream->synchronize() : stream->synchronize(deadline);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtGetDeviceCount(uint32_t* count) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(count);
    HCCL_ASSIGN_OR_RETURN(const auto config, Runtime::get().config());
    *count = config.count;
    return {};
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    devices().set(deviceId);
    return {};
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    return devices().reset(deviceId, false);
  });
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    return devices().reset(deviceId, true);
  });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(deviceId);
    HCCL_ASSIGN_OR_RETURN(const auto context, devices().current());
    *deviceId = context->device;
    return {};
  });
}

aclError aclrtSynchronizeDevice(void) {
  return guard(__func__, [] { return synchronize_device(-1); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return guard(__func__, [&] { return synchronize_device(timeout); });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(runMode);
    *runMode = ACL_HOST;
    return {};
  });
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return guard(__func__, [&]() -> Status {
    if (number(mode) > ACL_RT_OVERFLOW_MODE_INFNAN) {
      return bad("mode " + std::to_string(number(mode)) + " is unknown");
    }
    devices().set_overflow_mode(mode);
    return {};
  });
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(mode);
    *mode = devices().overflow_mode();
    return {};
  });
}

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(canAccessPeer);
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    HCCL_RETURN_IF_ERROR(check_device(peerDeviceId, "peerDeviceId"));
    *canAccessPeer = 1;
    return {};
  });
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_device(peerDeviceId, "peerDeviceId"));
    return flags == 0 ? Status() : bad("flags must be 0");
  });
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  return guard(__func__, [&] { return check_device(peerDeviceId, "peerDeviceId"); });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(context);
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    *context = devices().create(deviceId);
    return {};
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return guard(__func__, [&] { return devices().destroy(context); });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return guard(__func__, [&] { return devices().set_current(context); });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(context);
    HCCL_ASSIGN_OR_RETURN(const auto current, devices().current());
    *context = current->handle;
    return {};
  });
}

}  // extern "C"
