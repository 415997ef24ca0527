/* Collective operations. Valid C99 and C++.
 *
 * Counts are elements. All ranks of the communicator call the same operation with the same count,
 * type, reduce operation and root, in the same order; a difference is HCCL_E_PARA on all ranks,
 * with both calls in the text, as is a call that is refused on a rank for which others wait, unless
 * that rank makes the right call within half a second.
 *
 * Streams: with a NULL stream the operation runs on the caller's thread and is done on return. With
 * a created one its arguments are checked and it takes its place in the communicator's order now;
 * it runs when the stream comes to it, and its failure is the stream's. A communicator's operations
 * match by the order of the calls, whatever streams they are on. Between HcclGroupStart and
 * HcclGroupEnd (hccl_comm.h) calls are checked and collected.
 *
 * Buffers belong to the operation until it is done; send buffers are not written unless they are
 * the receive buffer. Arrays of counts are read before the call returns. No alignment is needed. A
 * count of 0 is a success and moves nothing, but all ranks must still call.
 *
 * Types: all move; all but HIF8 and FP8E8M0 are reduced, with every reduce operation. Numbers:
 * README.md.
 *
 * Errors. After those marked * the communicator has failed for good: destroy it.
 *   HCCL_E_PTR           null: the communicator, or an array or buffer that is needed
 *   HCCL_E_PARA          count > 0x7FFFFFFF, a rank out of range, a block beyond all memory, no
 *                        such stream
 *   HCCL_E_PARA *        the ranks' calls differ
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

/** buf of the root, in every rank's buf. */
HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root,
                         HcclComm comm, aclrtStream stream);

/** sendBuf holds recvCount elements for each rank; recvBuf = the reduction of the block of this
 * rank. In place if recvBuf == sendBuf + rank * recvCount. */
HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount,
                             HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream);

/** recvBuf = the sendBuf of all ranks in rank order.
 * In place if sendBuf == recvBuf + rank * sendCount. */
HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream);

/** recvBuf of the root = the reduction of all sendBufs; recvBuf is not used elsewhere and may be
 * null. */
HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream);

/** Block r of the root's sendBuf into the recvBuf of rank r; sendBuf may be null elsewhere. */
HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream);

/** Block r, of sendCounts[r] elements from element sendDispls[r] of sendBuf, is for rank r; recvBuf
 * = the reduction of the block of this rank, folded in rank order. The arrays hold a uint64_t a
 * rank and are the same on all ranks. HCCL_E_PARA: recvCount is not sendCounts[rank]; recvBuf is
 * sendBuf. */
HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls,
                              void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                              HcclReduceOp op, HcclComm comm, aclrtStream stream);

/** The sendBuf of rank r to recvCounts[r] elements from element recvDispls[r] of recvBuf. The
 * arrays hold a uint64_t a rank and are the same on all ranks. In place if sendBuf is where its
 * block goes. HCCL_E_PARA: sendCount is not recvCounts[rank]. */
HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm,
                          aclrtStream stream);

/** Block d of sendBuf to rank d, into its block number `rank`. sendBuf and recvBuf must differ. */
HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        HcclComm comm, aclrtStream stream);

/** sendCounts[d] elements from element sdispls[d] of sendBuf to rank d; recvCounts[s] elements of
 * rank s to element rdispls[s] of recvBuf. The arrays hold a uint64_t a rank. The receiver must
 * expect the number of elements that the sender sends: a difference is HCCL_E_PARA on all ranks.
 * sendBuf and recvBuf must differ, the types must not. */
HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, HcclComm comm,
                         aclrtStream stream);

/** The same from a matrix of size * size uint64_t, the same on all ranks: element i * size + j is
 * the number of elements that rank i sends to rank j. Blocks are contiguous and in rank order. */
HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, HcclComm comm,
                          aclrtStream stream);

/** Paired with HcclRecv on destRank; returns when the receiver has joined. */
HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream);
HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream);

/** Sends and receives that run together, so that their order among ranks does not matter. Several
 * with one peer in one direction pair in order, also with HcclSend, HcclRecv and groups of the
 * peer. A rank may send to itself, as often as it receives. No items: nothing is done.
 * HCCL_E_NOT_SUPPORT inside a group. */
HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm,
                             aclrtStream stream);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_H_ */
