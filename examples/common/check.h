// The check of every call. A rank cannot go on alone after a failure, and the others would wait for
// it: so the whole program ends.
#pragma once

#include <acl/acl.h>
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>

#include <cstdio>
#include <cstdlib>

#define ACL_CHECK(call)                                                                 \
  do {                                                                                  \
    const aclError acl_code = (call);                                                   \
    if (acl_code != ACL_SUCCESS) {                                                      \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, acl_code); \
      std::_Exit(1);                                                                    \
    }                                                                                   \
  } while (false)

#define HCCL_CHECK(call)                                                         \
  do {                                                                           \
    const HcclResult hccl_code = (call);                                         \
    if (hccl_code != HCCL_SUCCESS) {                                             \
      std::fprintf(stderr, "%s:%d: %s gave %d, %s\n", __FILE__, __LINE__, #call, \
                   static_cast<int>(hccl_code), HcclGetErrorString(hccl_code));  \
      std::_Exit(1);                                                             \
    }                                                                            \
  } while (false)
