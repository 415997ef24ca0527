/* Empty: there are no operators here, but programs include this header. Valid C99 and C++11. */
#ifndef ACL_ACL_OP_H_
#define ACL_ACL_OP_H_

#include "acl_base.h"

#endif /* ACL_ACL_OP_H_ */
