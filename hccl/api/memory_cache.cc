// Cached device memory: hccl/hccl_framework.h.
#include "hccl/acl/runtime.h"
#include "hccl/api/guard.h"
#include "hccl/hccl_framework.h"

using hccl::Status;
using hccl::acl::Runtime;
using hccl::api::guard;

extern "C" {

HcclResult HcclMemAlloc(void** ptr, size_t bytes) {
  return guard("HcclMemAlloc", [&]() -> Status {
    HCCL_CHECK_PTR(ptr);
    HCCL_ASSIGN_OR_RETURN(auto* const cache, Runtime::get().cache());
    HCCL_ASSIGN_OR_RETURN(*ptr, cache->allocate(bytes));
    return {};
  });
}

HcclResult HcclMemFree(void* ptr) {
  return guard("HcclMemFree", [&]() -> Status {
    if (ptr == nullptr || Runtime::get().inherited(ptr)) return {};
    HCCL_ASSIGN_OR_RETURN(auto* const cache, Runtime::get().cache());
    return cache->free(ptr).with_context("ptr");
  });
}

HcclResult HcclMemTrim(void) {
  return guard("HcclMemTrim", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(auto* const cache, Runtime::get().cache());
    cache->trim();
    return {};
  });
}

HcclResult HcclMemGetInfo(HcclMemInfo* info) {
  return guard("HcclMemGetInfo", [&]() -> Status {
    HCCL_CHECK_PTR(info);
    HCCL_ASSIGN_OR_RETURN(auto* const cache, Runtime::get().cache());
    const auto now = cache->info();
    *info = {now.in_use, now.cached, cache->limit(), cache->heap().used(), cache->heap().reserve(),
             now.reused, now.fresh};
    return {};
  });
}

}  // extern "C"
