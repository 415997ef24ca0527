/* Collective operations. Valid C99 and C++.
 *
 * Counts are numbers of elements. All ranks of the communicator call the same operations in the
 * same order, with the same count, type, reduce operation and root. If the calls differ, all ranks
 * get HCCL_E_PARA, and the error text shows both calls. If the library rejects the call of one rank
 * while other ranks wait for that rank, the rank has half a second to make the right call. If the
 * rank does not, all ranks get HCCL_E_PARA, too.
 *
 * Streams: with a NULL stream the operation runs on the caller's thread and is done on return. With
 * a created stream the call checks the arguments and fixes the operation's position in the
 * communicator's order. The operation runs when the stream reaches it, and its failure becomes the
 * failure of the stream. Operations of a communicator match by the order of the calls, even if they
 * are on different streams. Calls between HcclGroupStart and HcclGroupEnd (hccl_comm.h) are only
 * checked and collected; HcclGroupEnd issues them.
 *
 * Buffers belong to the operation until it is done. Send buffers are not written, unless they are
 * also the receive buffer. The receive buffer may overlap another buffer of the operation only if
 * the call is in place, as each function defines it. In a V operation the block that a rank sends
 * to itself may be in place. Send buffers may overlap each other. Two mappings of the same device
 * memory overlap. Arrays of counts are read before the call returns. No alignment is needed. An
 * operation with a count of 0 succeeds and moves nothing, but all ranks must still call it.
 *
 * Types: all types can be moved. All types except HIF8 and FP8E8M0 can be reduced, with every
 * reduce operation. Numeric rules: README.md.
 *
 * Errors. After an error marked * the communicator has failed for good: destroy it.
 *   HCCL_E_PTR           the communicator, or a required array or buffer, is null
 *   HCCL_E_PARA          count > 0x7FFFFFFF, a rank out of range, a block beyond the address
 *                        space, buffers that overlap, or an invalid stream
 *   HCCL_E_PARA *        the calls of the ranks differ
 *   HCCL_E_NOT_SUPPORT   unknown type or reduce operation
 *   HCCL_E_REMOTE *      a rank died
 *   HCCL_E_TIMEOUT *     the operation took longer than HCCL_EXEC_TIMEOUT */
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

/** Copies the root's buf to every rank's buf. */
HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root,
                         HcclComm comm, aclrtStream stream);

/** sendBuf holds one block of recvCount elements for each rank. recvBuf = the reduction of all
 * ranks' blocks for this rank. In place if recvBuf == sendBuf + rank * recvCount. */
HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount,
                             HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream);

/** recvBuf = the sendBufs of all ranks in rank order. In place if sendBuf == recvBuf + rank *
 * sendCount. */
HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream);

/** recvBuf of the root = the reduction of all sendBufs. Other ranks do not use recvBuf and may pass
 * null. In place if sendBuf == recvBuf. */
HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream);

/** Copies block r of the root's sendBuf to the recvBuf of rank r. On other ranks sendBuf may be
 * null. In place on the root if recvBuf == sendBuf + root * recvCount. */
HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream);

/** Block r of sendBuf is for rank r: sendCounts[r] elements from element sendDispls[r] on. recvBuf
 * = the reduction of all ranks' blocks for this rank, in rank order. The arrays hold one uint64_t
 * for each rank and are the same on all ranks. HCCL_E_PARA: recvCount is not sendCounts[rank], or
 * recvBuf is sendBuf. HCCL forbids the latter: a rank whose block begins at sendBuf cannot run in
 * place. */
HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls,
                              void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                              HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** Copies the sendBuf of rank r to recvCounts[r] elements of recvBuf, from element recvDispls[r]
 * on. The arrays hold one uint64_t for each rank and are the same on all ranks. In place if sendBuf
 * is this rank's block of recvBuf. HCCL_E_PARA: sendCount is not recvCounts[rank]. */
HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm,
                          aclrtStream stream);

/** Sends block d of sendBuf to rank d, into block `rank` (this rank's number) of rank d's recvBuf.
 * sendBuf and recvBuf must differ. */
HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        HcclComm comm, aclrtStream stream);

/** Sends sendCounts[d] elements, from element sdispls[d] of sendBuf on, to rank d. Receives
 * recvCounts[s] elements from rank s, from element rdispls[s] of recvBuf on. The arrays hold one
 * uint64_t for each rank. The receiver must expect the number of elements that the sender sends: a
 * difference is HCCL_E_PARA on all ranks. sendBuf and recvBuf must differ; the types must be equal.
 */
HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, HcclComm comm,
                         aclrtStream stream);

/** As HcclAlltoAllV, but one matrix gives all counts: its element i * size + j is the number of
 * elements that rank i sends to rank j. The matrix holds size * size uint64_t and is equal on all
 * ranks. Blocks are contiguous, in rank order. */
HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, HcclComm comm,
                          aclrtStream stream);

/** Sends to a matching HcclRecv on destRank. The send ends only after destRank has begun to
 * receive. */
HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream);
HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream);

/** Runs sends and receives concurrently, so their order does not matter. Items with the same peer
 * and direction match in order. On the peer, the matching operation may also be an HcclSend, an
 * HcclRecv or part of a group of calls. A rank may send to itself if the items include an equal
 * number of receives from itself. Without items the call succeeds and does nothing.
 * HCCL_E_NOT_SUPPORT inside a group. */
HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm,
                             aclrtStream stream);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_H_ */
