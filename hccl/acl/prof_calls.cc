// The profiler functions: arguments are checked, nothing is profiled.
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "hccl/acl/acl_prof.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

constexpr std::uint64_t kData = ACL_PROF_ACL_API | ACL_PROF_TASK_TIME | ACL_PROF_AICORE_METRICS |
                                ACL_PROF_AICPU | ACL_PROF_L2CACHE | ACL_PROF_HCCL_TRACE |
                                ACL_PROF_TRAINING_TRACE | ACL_PROF_MSPROFTX | ACL_PROF_RUNTIME_API;

Status invalid(std::string text) { return failure(ACL_ERROR_INVALID_PARAM, std::move(text)); }

Status check_devices(const std::uint32_t* devices, std::uint32_t number) {
  if (devices == nullptr) return invalid("deviceIdList is null");
  HCCL_ASSIGN_OR_RETURN(const DeviceConfig config, Runtime::get().config());
  if (number == 0 || number > config.count) {
    return invalid("deviceNums is " + std::to_string(number) + ", there are " +
                   std::to_string(config.count) + " devices");
  }
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < number; ++i) {
    if (devices[i] >= config.count || !seen.insert(devices[i]).second) {
      return invalid("deviceIdList: device " + std::to_string(devices[i]) +
                     " does not exist, or is there twice");
    }
  }
  return {};
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclprofInit(const char* path, size_t length) {
  return guard(__func__, [&]() -> Status {
    if (path == nullptr) return invalid("path is null");
    if (length == 0 || length > ACL_PROF_MAX_PATH_LENGTH) {
      return invalid("length is " + std::to_string(length) + ", not 1 to 4096");
    }
    if (strnlen(path, length) != length) return invalid("length is more than path has");
    return Runtime::get().profiler().init();
  });
}

aclError aclprofFinalize(void) {
  return guard(__func__, [] { return Runtime::get().profiler().finalize(); });
}

aclprofConfig* aclprofCreateConfig(uint32_t* deviceIdList, uint32_t deviceNums,
                                   aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents* aicoreEvents,
                                   uint64_t dataTypeConfig) {
  aclprofConfig* config = nullptr;
  static_cast<void>(guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_devices(deviceIdList, deviceNums));
    if (const unsigned metrics = number(aicoreMetrics);
        metrics > ACL_AICORE_MEMORY_ACCESS && metrics != ACL_AICORE_NONE) {
      return invalid("aicoreMetrics is unknown");
    }
    if (aicoreEvents != nullptr) return invalid("aicoreEvents must be null");
    if ((dataTypeConfig & ~kData) != 0) return invalid("dataTypeConfig has unknown bits");
    config = static_cast<aclprofConfig*>(Runtime::get().profiler().create());
    return {};
  }));
  return config;
}

aclError aclprofDestroyConfig(const aclprofConfig* config) {
  return guard(__func__, [&] { return Runtime::get().profiler().destroy(config); });
}

aclError aclprofStart(const aclprofConfig* config) {
  return guard(__func__, [&] { return Runtime::get().profiler().start(config); });
}

aclError aclprofStop(const aclprofConfig* config) {
  return guard(__func__, [&] { return Runtime::get().profiler().stop(config); });
}

}  // extern "C"
