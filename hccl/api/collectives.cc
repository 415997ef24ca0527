// Operations: hccl/hccl.h, and the scaled reductions of hccl/hccl_framework.h.
#include "hccl/api/entry.h"

namespace api = hccl::api;

using api::issue_by_handle;

extern "C" {

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                         HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclAllReduce", comm, stream, api::all_reduce, sendBuf, recvBuf, count,
                         dataType, op, nullptr);
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root,
                         HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclBroadcast", comm, stream, api::broadcast, buf, count, dataType, root);
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount,
                             HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream) {
  return issue_by_handle("HcclReduceScatter", comm, stream, api::reduce_scatter, sendBuf, recvBuf,
                         recvCount, dataType, op, nullptr);
}

HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls,
                              void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                              HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclReduceScatterV", comm, stream, api::reduce_scatter_v, sendBuf,
                         sendCounts, sendDispls, recvBuf, recvCount, dataType, op);
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclAllGather", comm, stream, api::all_gather, sendBuf, recvBuf,
                         sendCount, dataType);
}

HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm,
                          aclrtStream stream) {
  return issue_by_handle("HcclAllGatherV", comm, stream, api::all_gather_v, sendBuf, sendCount,
                         recvBuf, recvCounts, recvDispls, dataType);
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclReduce", comm, stream, api::reduce, sendBuf, recvBuf, count, dataType,
                         op, nullptr, root);
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclScatter", comm, stream, api::scatter, sendBuf, recvBuf, recvCount,
                         dataType, root);
}

// HCCL declares recvBuf const, although the operation writes to it.

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclAlltoAll", comm, stream, api::all_to_all, sendBuf, sendCount,
                         sendType, const_cast<void*>(recvBuf), recvCount, recvType);
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, HcclComm comm,
                         aclrtStream stream) {
  return issue_by_handle("HcclAlltoAllV", comm, stream, api::all_to_all_v, sendBuf, sendCounts,
                         sdispls, sendType, const_cast<void*>(recvBuf), recvCounts, rdispls,
                         recvType);
}

HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, HcclComm comm,
                          aclrtStream stream) {
  return issue_by_handle("HcclAlltoAllVC", comm, stream, api::all_to_all_vc, sendBuf,
                         sendCountMatrix, sendType, const_cast<void*>(recvBuf), recvType);
}

HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclSend", comm, stream, api::send, sendBuf, count, dataType, destRank,
                         hccl::api::SrTag());
}

HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclRecv", comm, stream, api::recv, recvBuf, count, dataType, srcRank,
                         hccl::api::SrTag());
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm,
                             aclrtStream stream) {
  return issue_by_handle("HcclBatchSendRecv", comm, stream, api::batch_send_recv, sendRecvInfo,
                         itemNum);
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclBarrier", comm, stream, api::barrier);
}

HcclResult HcclAllReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                               HcclReduceOp op, const HcclScale* scale, HcclComm comm,
                               aclrtStream stream) {
  return issue_by_handle("HcclAllReduceScaled", comm, stream, api::all_reduce, sendBuf, recvBuf,
                         count, dataType, op, scale);
}

HcclResult HcclReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                            HcclReduceOp op, const HcclScale* scale, uint32_t root, HcclComm comm,
                            aclrtStream stream) {
  return issue_by_handle("HcclReduceScaled", comm, stream, api::reduce, sendBuf, recvBuf, count,
                         dataType, op, scale, root);
}

HcclResult HcclReduceScatterScaled(void* sendBuf, void* recvBuf, uint64_t recvCount,
                                   HcclDataType dataType, HcclReduceOp op, const HcclScale* scale,
                                   HcclComm comm, aclrtStream stream) {
  return issue_by_handle("HcclReduceScatterScaled", comm, stream, api::reduce_scatter, sendBuf,
                         recvBuf, recvCount, dataType, op, scale);
}

}  // extern "C"
