// Scaled reductions: hccl/hccl_framework.h.
#include "hccl/api/on.h"
#include "hccl/api/operations.h"

namespace api = hccl::api;

extern "C" {

HcclResult HcclAllReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                               HcclReduceOp op, const HcclScale* scale, HcclComm comm,
                               aclrtStream stream) {
  return api::on("HcclAllReduceScaled", comm, api::all_reduce_scaled, sendBuf, recvBuf, count,
                 dataType, op, scale, stream);
}

HcclResult HcclReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                            HcclReduceOp op, const HcclScale* scale, uint32_t root, HcclComm comm,
                            aclrtStream stream) {
  return api::on("HcclReduceScaled", comm, api::reduce_scaled, sendBuf, recvBuf, count, dataType,
                 op, scale, root, stream);
}

HcclResult HcclReduceScatterScaled(void* sendBuf, void* recvBuf, uint64_t recvCount,
                                   HcclDataType dataType, HcclReduceOp op, const HcclScale* scale,
                                   HcclComm comm, aclrtStream stream) {
  return api::on("HcclReduceScatterScaled", comm, api::reduce_scatter_scaled, sendBuf, recvBuf,
                 recvCount, dataType, op, scale, stream);
}

}  // extern "C"
