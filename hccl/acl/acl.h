/* The part of HCCL's acl runtime that the collective interface itself needs. Valid C99 and C++. */
#ifndef ACL_ACL_H_
#define ACL_ACL_H_

/** An ordered queue of work. NULL: the operation runs now, on the caller's thread. */
typedef void* aclrtStream;

#endif  /* ACL_ACL_H_ */
