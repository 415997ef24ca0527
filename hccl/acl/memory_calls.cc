// The memory functions.
#include <cstdint>
#include <limits>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

constexpr std::size_t kUnit = 32;  // sizes are rounded up to a multiple of kUnit

// Bits that may be added to a policy.
constexpr unsigned kPolicyBits =
    ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH | ACL_MEM_ACCESS_USER_SPACE_READONLY;

Status allocate(void** memory, std::size_t size, const aclrtMemMallocPolicy& policy,
                std::size_t extra) {
  if (memory == nullptr) return bad("devPtr is null");
  if (size == 0) return bad("size is 0");
  if ((number(policy) & ~kPolicyBits) > ACL_MEM_MALLOC_HUGE1G_ONLY_P2P) {
    return bad("policy " + std::to_string(number(policy)) + " is unknown");
  }
  if (size > std::numeric_limits<std::size_t>::max() - 2 * kUnit) {
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "size is more than there can be");
  }
  HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
  HCCL_ASSIGN_OR_RETURN(*memory, heap->allocate((size + kUnit - 1) / kUnit * kUnit + extra));
  return {};
}

// Returns whether this kind of memory exists. Only pages of 1 GB do not exist; all other kinds are
// the same.
Result<bool> exists(const aclrtMemAttr& attr, const char* argument) {
  switch (const unsigned value = number(attr)) {
    case ACL_HBM_MEM_HUGE1G:
    case ACL_HBM_MEM_P2P_HUGE1G:
    case ACL_MEM_HUGE1G:
    case ACL_MEM_P2P_HUGE1G:
      return false;
    default:
      if (value <= ACL_MEM_P2P_HUGE1G) return true;
      return bad(std::string(argument) + " " + std::to_string(value) + " is unknown");
  }
}

Status check_prop(const aclrtPhysicalMemProp* prop) {
  ACL_CHECK_PTR(prop);
  if (const unsigned type = number(prop->handleType);
      type != ACL_MEM_HANDLE_TYPE_NONE && type != ACL_MEM_HANDLE_TYPE_POSIX) {
    return bad("prop: handleType is unknown");
  }
  if (number(prop->allocationType) != ACL_MEM_ALLOCATION_TYPE_PINNED) {
    return bad("prop: allocationType is unknown");
  }
  HCCL_RETURN_IF_ERROR(exists(prop->memAttr, "prop: memAttr").status());
  const unsigned location = number(prop->location.type);
  if (location > ACL_MEM_LOCATION_TYPE_HOST_NUMA) return bad("prop: location.type is unknown");
  if (location != ACL_MEM_LOCATION_TYPE_DEVICE) return {};
  HCCL_ASSIGN_OR_RETURN(const DeviceConfig config, Runtime::get().config());
  if (prop->location.id < config.count) return {};
  return failure(ACL_ERROR_RT_INVALID_DEVICEID,
                 "prop: location.id is " + std::to_string(prop->location.id) + ", there are " +
                     std::to_string(config.count) + " devices");
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return guard(__func__, [&] { return allocate(devPtr, size, policy, kUnit); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return guard(__func__, [&] { return allocate(devPtr, size, policy, 0); });
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return guard(__func__, [&] { return allocate(devPtr, size, policy, kUnit); });
}

aclError aclrtFree(void* devPtr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(devPtr);
    if (Runtime::get().inherited(devPtr)) return {};
    HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
    return heap->free(devPtr).with_context("devPtr");
  });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(hostPtr);
    if (size == 0) return bad("size is 0");
    HCCL_ASSIGN_OR_RETURN(*hostPtr, Runtime::get().host_memory().allocate(size));
    return {};
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(hostPtr);
    return Runtime::get().host_memory().free(hostPtr);
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const bool there, exists(attr, "attr"));
    ACL_CHECK_PTR(free);
    ACL_CHECK_PTR(total);
    HCCL_RETURN_IF_ERROR(Runtime::get().devices().current().status());
    HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
    *total = there ? heap->reserve() : 0;
    *free = there ? heap->reserve() - heap->used() : 0;
    return {};
  });
}

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                uint64_t flags) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(virPtr);
    if (size == 0) return bad("size is 0");
    if (alignment != 0) return bad("alignment must be 0");
    if (expectPtr != nullptr) return bad("expectPtr must be null");
    if (flags > 1) return bad("flags must be 0 or 1");
    HCCL_ASSIGN_OR_RETURN(*virPtr, Runtime::get().addresses().reserve(size));
    return {};
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(virPtr);
    return Runtime::get().addresses().release(virPtr);
  });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size,
                             const aclrtPhysicalMemProp* prop, uint64_t flags) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(handle);
    if (size == 0 || size % hccl::memory::Heap::kGranule != 0) {
      return bad("size is " + std::to_string(size) + ", no multiple of " +
                 std::to_string(hccl::memory::Heap::kGranule));
    }
    HCCL_RETURN_IF_ERROR(check_prop(prop));
    if (prop->location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
      return bad("prop: location.type must be ACL_MEM_LOCATION_TYPE_DEVICE");
    }
    if (flags != 0) return bad("flags must be 0");
    Runtime& runtime = Runtime::get();
    HCCL_ASSIGN_OR_RETURN(auto heap, runtime.heap());
    if (size > heap->reserve()) {
      return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "size is more than all device memory");
    }
    HCCL_ASSIGN_OR_RETURN(auto memory, Physical::allocate(std::move(heap), size));
    *handle = runtime.physical().add(std::move(memory));
    return {};
  });
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return guard(__func__, [&] { return known(Runtime::get().physical().take(handle)).status(); });
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                     uint64_t flags) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(virPtr);
    HCCL_ASSIGN_OR_RETURN(auto memory, known(Runtime::get().physical().get(handle)));
    if (size != memory->bytes()) {
      return bad("size is " + std::to_string(size) + ", the memory has " +
                 std::to_string(memory->bytes()) + " bytes");
    }
    if (offset != 0) return bad("offset must be 0");
    if (flags != 0) return bad("flags must be 0");
    return Runtime::get().addresses().map(virPtr, std::move(memory));
  });
}

aclError aclrtUnmapMem(void* virPtr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(virPtr);
    return Runtime::get().addresses().unmap(virPtr);
  });
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop,
                                          aclrtMemGranularityOptions option, size_t* granularity) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_prop(prop));
    if (number(option) > ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return bad("option " + std::to_string(number(option)) + " is unknown");
    }
    ACL_CHECK_PTR(granularity);
    *granularity = hccl::memory::Heap::kGranule;
    return {};
  });
}

}  // extern "C"
