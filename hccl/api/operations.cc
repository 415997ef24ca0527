#include "hccl/api/operations.h"

#include "hccl/api/call_group.h"
#include "hccl/api/checks.h"
#include "hccl/api/guard.h"

namespace hccl::api {

Status issue(const CommunicatorPtr& comm, const Call& call, aclrtStream stream) {
  if (in_call_group()) return collect({comm, stream, call, {}, {}, {}});
  if (stream == nullptr) return comm->run(call);
  return enqueue({comm, stream, call, {}, {}, {}});
}

Status issue(const CommunicatorPtr& comm, Call call, std::vector<Block> in_blocks,
             std::vector<Block> out_blocks, aclrtStream stream) {
  if (stream == nullptr && !in_call_group()) {
    call.in_blocks = in_blocks;
    call.out_blocks = out_blocks;
    return comm->run(call);
  }
  Job job{comm, stream, call, std::move(in_blocks), std::move(out_blocks), {}};
  return in_call_group() ? collect(std::move(job)) : enqueue(std::move(job));
}

Status all_reduce_scaled(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf,
                         std::uint64_t count, HcclDataType type, HcclReduceOp op,
                         const HcclScale* scale, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_ASSIGN_OR_RETURN(const Scale factors, check_scale(scale, fold, data));
  Call call{Op::kAllReduce, sendBuf, recvBuf, count, data, fold, 0, 0};
  call.scale = factors;
  return issue(comm, call, stream);
}

Status all_reduce(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                  HcclDataType type, HcclReduceOp op, aclrtStream stream) {
  return all_reduce_scaled(comm, sendBuf, recvBuf, count, type, op, nullptr, stream);
}

Status broadcast(const CommunicatorPtr& comm, void* buf, std::uint64_t count, HcclDataType type,
                 std::uint32_t root, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(buf, count, "buf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm->size(), "root"));
  return issue(comm,
               {Op::kBroadcast, buf, buf, count, data, ReduceOp::kSum, static_cast<int>(root), 0},
               stream);
}

Status reduce_scatter_scaled(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf,
                             std::uint64_t count, HcclDataType type, HcclReduceOp op,
                             const HcclScale* scale, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_ASSIGN_OR_RETURN(const Scale factors, check_scale(scale, fold, data));
  Call call{Op::kReduceScatter, sendBuf, recvBuf, count, data, fold, 0, 0};
  call.scale = factors;
  return issue(comm, call, stream);
}

Status reduce_scatter(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf,
                      std::uint64_t count, HcclDataType type, HcclReduceOp op, aclrtStream stream) {
  return reduce_scatter_scaled(comm, sendBuf, recvBuf, count, type, op, nullptr, stream);
}

Status all_gather(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                  HcclDataType type, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  return issue(comm, {Op::kAllGather, sendBuf, recvBuf, count, data, ReduceOp::kSum, 0, 0}, stream);
}

Status reduce_scaled(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                     HcclDataType type, HcclReduceOp op, const HcclScale* scale, std::uint32_t root,
                     aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_ASSIGN_OR_RETURN(const Scale factors, check_scale(scale, fold, data));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm->size(), "root"));
  if (static_cast<int>(root) == comm->rank()) HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  Call call{Op::kReduce, sendBuf, recvBuf, count, data, fold, static_cast<int>(root), 0};
  call.scale = factors;
  return issue(comm, call, stream);
}

Status reduce(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
              HcclDataType type, HcclReduceOp op, std::uint32_t root, aclrtStream stream) {
  return reduce_scaled(comm, sendBuf, recvBuf, count, type, op, nullptr, root, stream);
}

Status scatter(const CommunicatorPtr& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
               HcclDataType type, std::uint32_t root, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm->size(), "root"));
  if (static_cast<int>(root) == comm->rank()) HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  return issue(
      comm,
      {Op::kScatter, sendBuf, recvBuf, count, data, ReduceOp::kSum, static_cast<int>(root), 0},
      stream);
}

Status all_to_all(const CommunicatorPtr& comm, const void* sendBuf, std::uint64_t sendCount,
                  HcclDataType sendType, void* recvBuf, std::uint64_t recvCount,
                  HcclDataType recvType, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, sendCount, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, recvCount, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(sendCount, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(sendType, "sendType"));
  if (recvType != sendType) return Status(Code::kPara, "recvType differs from sendType");
  if (recvCount != sendCount) return Status(Code::kPara, "recvCount differs from sendCount");
  if (sendCount != 0 && sendBuf == recvBuf) return Status(Code::kPara, "recvBuf is sendBuf");
  return issue(comm, {Op::kAllToAll, sendBuf, recvBuf, sendCount, data, ReduceOp::kSum, 0, 0},
               stream);
}

Status barrier(const CommunicatorPtr& comm, aclrtStream stream) { return issue(comm, {}, stream); }

}  // namespace hccl::api
