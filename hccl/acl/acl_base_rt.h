/* Queries that need no initialization. Valid C99 and C++11. */
#ifndef ACL_ACL_BASE_RT_H_
#define ACL_ACL_BASE_RT_H_

#include "acl_base.h"
#include "error_codes/rt_error_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the processor's name: always "Ascend910". Programs for HCCL choose their code by this
 * name. The string is static. Works before aclInit. */
const char* aclrtGetSocName(void);

/** Returns the text of the calling thread's last failed call of acl or HCCL, as
 * HcclGetLastErrorText() does. The text names the function and the argument. Returns NULL if no
 * call has failed since the last call of this function. The text is valid until the thread's next
 * failed call. */
const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_BASE_RT_H_ */
