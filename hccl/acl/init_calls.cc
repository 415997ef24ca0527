// Start and end of the runtime, and the queries that are allowed before the start.
#include <unistd.h>

#include <cstdint>

#include "hccl/acl/acl.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

using hccl::Status;
using hccl::acl::guard;
using hccl::acl::Runtime;

extern "C" {

aclError aclInit(const char* configPath) {
  return guard(__func__, [&]() -> Status {
    if (configPath != nullptr && access(configPath, R_OK) != 0) {
      return hccl::acl::failure(ACL_ERROR_INVALID_FILE, "configPath cannot be read");
    }
    if (Runtime::get().initialize() == 1) return {};
    return hccl::acl::failure(ACL_ERROR_REPEAT_INITIALIZE, "called before, which does no harm");
  });
}

aclError aclFinalize(void) {
  return guard(__func__, [&]() -> Status {
    Runtime::get().finalize();
    return {};
  });
}

aclError aclFinalizeReference(uint64_t* refCount) {
  return guard(__func__, [&]() -> Status {
    const std::uint64_t left = Runtime::get().finalize_one();
    if (refCount != nullptr) *refCount = left;
    return {};
  });
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(majorVersion);
    ACL_CHECK_PTR(minorVersion);
    ACL_CHECK_PTR(patchVersion);
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return {};
  });
}

const char* aclrtGetSocName(void) { return "Ascend910"; }

}  // extern "C"
