/* The types of the acl runtime, and the error codes that are not in rt_error_codes.h. All acl
 * headers include this header. Valid C99 and C++11. */
#ifndef ACL_ACL_BASE_H_
#define ACL_ACL_BASE_H_

#include <stddef.h>
#include <stdint.h>

#include "error_codes/rt_error_codes.h"

/** 0, or an error: an ACL_ERROR_ code of this header or of rt_error_codes.h. aclGetRecentErrMsg()
 * returns the error's text. */
typedef int aclError;

/** Handles. A handle's value is never used twice, so a call with a destroyed or invented handle
 * returns an error and never crashes. */
typedef void* aclrtStream;
typedef void* aclrtEvent;
typedef void* aclrtContext;

/* Constants in C++, as in HCCL. In C they are enumerators, which cause no warning if unused. */
#ifdef __cplusplus
#define ACL_CODE_(name, value) static const int name = value
#else
#define ACL_CODE_(name, value) enum { name = value }
#endif
ACL_CODE_(ACL_ERROR_NONE, 0);
ACL_CODE_(ACL_SUCCESS, 0);
ACL_CODE_(ACL_ERROR_INVALID_PARAM, 100000);
ACL_CODE_(ACL_ERROR_UNINITIALIZE, 100001);
ACL_CODE_(ACL_ERROR_REPEAT_INITIALIZE, 100002);
ACL_CODE_(ACL_ERROR_INVALID_FILE, 100003);
ACL_CODE_(ACL_ERROR_REPEAT_FINALIZE, 100037);
ACL_CODE_(ACL_ERROR_PROF_ALREADY_RUN, 100042);
ACL_CODE_(ACL_ERROR_PROF_NOT_RUN, 100043);
ACL_CODE_(ACL_ERROR_BAD_ALLOC, 200000);
ACL_CODE_(ACL_ERROR_API_NOT_SUPPORT, 200001);
ACL_CODE_(ACL_ERROR_INVALID_DEVICE, 200002);
ACL_CODE_(ACL_ERROR_INVALID_RESOURCE_HANDLE, 200005);
ACL_CODE_(ACL_ERROR_FEATURE_UNSUPPORTED, 200006);
ACL_CODE_(ACL_ERROR_INTERNAL_ERROR, 500000);
ACL_CODE_(ACL_ERROR_FAILURE, 500001);
#undef ACL_CODE_

#endif /* ACL_ACL_BASE_H_ */
