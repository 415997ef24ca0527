// Collective operations: hccl/hccl.h.
#include "hccl/api/on.h"
#include "hccl/api/operations.h"
#include "hccl/hccl.h"

namespace api = hccl::api;

using api::on;

extern "C" {

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                         HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return on("HcclAllReduce", comm, api::all_reduce, sendBuf, recvBuf, count, dataType, op, stream);
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root,
                         HcclComm comm, aclrtStream stream) {
  return on("HcclBroadcast", comm, api::broadcast, buf, count, dataType, root, stream);
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount,
                             HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream) {
  return on("HcclReduceScatter", comm, api::reduce_scatter, sendBuf, recvBuf, recvCount, dataType,
            op, stream);
}

HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls,
                              void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                              HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return on("HcclReduceScatterV", comm, api::reduce_scatter_v, sendBuf, sendCounts, sendDispls,
            recvBuf, recvCount, dataType, op, stream);
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream) {
  return on("HcclAllGather", comm, api::all_gather, sendBuf, recvBuf, sendCount, dataType, stream);
}

HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm,
                          aclrtStream stream) {
  return on("HcclAllGatherV", comm, api::all_gather_v, sendBuf, sendCount, recvBuf, recvCounts,
            recvDispls, dataType, stream);
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream) {
  return on("HcclReduce", comm, api::reduce, sendBuf, recvBuf, count, dataType, op, root, stream);
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream) {
  return on("HcclScatter", comm, api::scatter, sendBuf, recvBuf, recvCount, dataType, root, stream);
}

// HCCL declares recvBuf const although it is written.

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        HcclComm comm, aclrtStream stream) {
  return on("HcclAlltoAll", comm, api::all_to_all, sendBuf, sendCount, sendType,
            const_cast<void*>(recvBuf), recvCount, recvType, stream);
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, HcclComm comm,
                         aclrtStream stream) {
  return on("HcclAlltoAllV", comm, api::all_to_all_v, sendBuf, sendCounts, sdispls, sendType,
            const_cast<void*>(recvBuf), recvCounts, rdispls, recvType, stream);
}

HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, HcclComm comm,
                          aclrtStream stream) {
  return on("HcclAlltoAllVC", comm, api::all_to_all_vc, sendBuf, sendCountMatrix, sendType,
            const_cast<void*>(recvBuf), recvType, stream);
}

HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream) {
  return on("HcclSend", comm, api::send, sendBuf, count, dataType, destRank, stream);
}

HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream) {
  return on("HcclRecv", comm, api::recv, recvBuf, count, dataType, srcRank, stream);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm,
                             aclrtStream stream) {
  return on("HcclBatchSendRecv", comm, api::batch_send_recv, sendRecvInfo, itemNum, stream);
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return on("HcclBarrier", comm, api::barrier, stream);
}

}  // extern "C"
