// Checks every call. After a failure a rank cannot continue alone, and the other ranks would wait
// for the rank. So the whole program ends.
#pragma once

#include <acl/acl.h>
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>

#include <cstdio>
#include <cstdlib>

#define ACL_CHECK(call)                                                            \
  do {                                                                             \
    const aclError acl_code = (call);                                              \
    if (acl_code != ACL_SUCCESS) {                                                 \
      const char* text = aclGetRecentErrMsg();                                     \
      example::fail(__FILE__, __LINE__, #call, acl_code, text ? text : "no text"); \
    }                                                                              \
  } while (false)

// HcclGetLastErrorText is an addition of this library; HcclGetErrorString(code) is HCCL's.
#define HCCL_CHECK(call)                                                           \
  do {                                                                             \
    const HcclResult hccl_code = (call);                                           \
    if (hccl_code != HCCL_SUCCESS) {                                               \
      example::fail(__FILE__, __LINE__, #call, hccl_code, HcclGetLastErrorText()); \
    }                                                                              \
  } while (false)

namespace example {

[[noreturn]] inline void fail(const char* file, int line, const char* call, int code,
                              const char* text) {
  std::fprintf(stderr, "%s:%d: %s gave %d: %s\n", file, line, call, code, text);
  std::_Exit(1);
}

}  // namespace example
