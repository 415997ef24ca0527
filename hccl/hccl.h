/* Collective operations. Valid C99 and C++.
 *
 * Counts are elements. All ranks of the communicator call the same operation with the same count, type,
 * reduce operation and root, in the same order; a difference is HCCL_E_PARA on all ranks, with both calls
 * in the text. A NULL stream runs the operation on the caller's thread: it is done on return.
 * Buffers belong to the operation until it is done; send buffers are not written unless they are the
 * receive buffer. No alignment is needed. A count of 0 is a success and does nothing.
 * Errors: HCCL_E_PTR null communicator or buffer; HCCL_E_PARA count > 0x7FFFFFFF or rank out of range;
 * HCCL_E_NOT_SUPPORT unknown type or reduce operation; HCCL_E_REMOTE a rank died; HCCL_E_TIMEOUT. After
 * HCCL_E_REMOTE, HCCL_E_TIMEOUT or a mismatch the communicator has failed for good: destroy it. */
#ifndef HCCL_H_
#define HCCL_H_

#include "acl/acl.h"
#include "hccl_comm.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** recvBuf = the reduction of all ranks' sendBuf, on every rank. In place if sendBuf == recvBuf. */
HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                         HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** buf of the root, in every rank's buf. */
HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream);

/** sendBuf holds recvCount elements for each rank; recvBuf = the reduction of the block of this rank.
 * In place if recvBuf == sendBuf + rank * recvCount. */
HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                             HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** recvBuf = the sendBuf of all ranks in rank order. In place if sendBuf == recvBuf + rank * sendCount. */
HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream);

/** recvBuf of the root = the reduction of all sendBufs; recvBuf is not used elsewhere and may be null. */
HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream);

/** Block r of the root's sendBuf into the recvBuf of rank r; sendBuf may be null elsewhere. */
HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream);

/** Block d of sendBuf to rank d, into its block number `rank`. sendBuf and recvBuf must differ. */
HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType, HcclComm comm,
                        aclrtStream stream);

/** Paired with HcclRecv on destRank; returns when the receiver has joined. */
HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream);
HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream);

#ifdef __cplusplus
}
#endif
#endif  /* HCCL_H_ */
