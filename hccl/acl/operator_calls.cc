// Settings of the operators that a device runs. A CPU runs no such operators.
#include <cstdint>
#include <limits>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

Status check_stream(aclrtStream stream) {
  return stream == nullptr ? Status() : known(find_stream(stream)).status();
}

Status check_type(const aclrtDevResLimitType& type) {
  if (number(type) <= ACL_RT_DEV_RES_VECTOR_CORE) return {};
  return bad("type " + std::to_string(number(type)) + " is unknown");
}

Status no_cores(const std::string& argument) {
  return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                 argument + " has no cube or vector cores on a CPU, so they cannot be limited");
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t /*value*/) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_device(deviceId, "deviceId"));
    HCCL_RETURN_IF_ERROR(check_type(type));
    return no_cores("deviceId " + std::to_string(deviceId));
  });
}

aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t /*value*/) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_stream(stream));
    HCCL_RETURN_IF_ERROR(check_type(type));
    return no_cores("stream");
  });
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_stream(stream));
    return no_cores("stream");
  });
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_stream(stream));
    return no_cores("stream");
  });
}

aclError aclrtSetOpExecuteTimeOut(uint32_t /*timeout*/) {
  return guard(__func__, [] { return Status(); });
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t /*timeout*/, uint64_t* actualTimeout) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(actualTimeout);
    *actualTimeout = std::numeric_limits<std::uint64_t>::max();
    return {};
  });
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_stream(stream));
    if (flag > 1) return bad("flag is " + std::to_string(flag) + ", not 0 or 1");
    if (flag == 0) return {};
    return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                   "flag is 1, but overflows are not detected on a CPU");
  });
}

}  // extern "C"
