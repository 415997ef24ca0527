/* The acl runtime: devices, memory, streams and events of HCCL's programs, on the host's
 * processors. Valid C99 and C++11. */
#ifndef ACL_ACL_H_
#define ACL_ACL_H_

#include "acl_mdl.h"
#include "acl_op.h"
#include "acl_rt.h"

#endif /* ACL_ACL_H_ */
