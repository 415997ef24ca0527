#include "hccl/api/operations.h"

#include "hccl/api/checks.h"

namespace hccl::api {

namespace {

// An allreduce or a reduce-scatter.
Result<Call> reduction(Op op, void* in, void* out, std::uint64_t count, const char* count_name,
                       HcclDataType type, HcclReduceOp reduce, const HcclScale* scale) {
  HCCL_RETURN_IF_ERROR(need(in, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(out, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, count_name));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(reduce, data));
  HCCL_ASSIGN_OR_RETURN(const Scale factors, check_scale(scale, fold, data));
  return Call{.op = op,
              .in = in,
              .out = out,
              .count = count,
              .type = data,
              .reduce = fold,
              .scale = factors};
}

}  // namespace

Result<Call> all_reduce(const Communicator&, void* sendBuf, void* recvBuf, std::uint64_t count,
                        HcclDataType type, HcclReduceOp op, const HcclScale* scale) {
  return reduction(Op::kAllReduce, sendBuf, recvBuf, count, "count", type, op, scale);
}

Result<Call> broadcast(const Communicator& comm, void* buf, std::uint64_t count, HcclDataType type,
                       std::uint32_t root) {
  HCCL_RETURN_IF_ERROR(need(buf, count, "buf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  return Call{Op::kBroadcast, buf, buf, count, data, ReduceOp::kSum, static_cast<int>(root)};
}

Result<Call> reduce_scatter(const Communicator&, void* sendBuf, void* recvBuf, std::uint64_t count,
                            HcclDataType type, HcclReduceOp op, const HcclScale* scale) {
  return reduction(Op::kReduceScatter, sendBuf, recvBuf, count, "recvCount", type, op, scale);
}

Result<Call> all_gather(const Communicator&, void* sendBuf, void* recvBuf, std::uint64_t count,
                        HcclDataType type) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  return Call{Op::kAllGather, sendBuf, recvBuf, count, data};
}

Result<Call> reduce(const Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                    HcclDataType type, HcclReduceOp op, const HcclScale* scale,
                    std::uint32_t root) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_ASSIGN_OR_RETURN(const Scale factors, check_scale(scale, fold, data));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  if (static_cast<int>(root) == comm.rank()) HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  return Call{.op = Op::kReduce,
              .in = sendBuf,
              .out = recvBuf,
              .count = count,
              .type = data,
              .reduce = fold,
              .root = static_cast<int>(root),
              .scale = factors};
}

Result<Call> scatter(const Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                     HcclDataType type, std::uint32_t root) {
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  if (static_cast<int>(root) == comm.rank()) HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  return Call{Op::kScatter, sendBuf, recvBuf, count, data, ReduceOp::kSum, static_cast<int>(root)};
}

Result<Call> all_to_all(const Communicator&, const void* sendBuf, std::uint64_t sendCount,
                        HcclDataType sendType, void* recvBuf, std::uint64_t recvCount,
                        HcclDataType recvType) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, sendCount, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, recvCount, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(sendCount, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(sendType, "sendType"));
  if (recvType != sendType) return Status(Code::kPara, "recvType differs from sendType");
  if (recvCount != sendCount) return Status(Code::kPara, "recvCount differs from sendCount");
  if (sendCount != 0 && sendBuf == recvBuf) return Status(Code::kPara, "recvBuf is sendBuf");
  return Call{Op::kAllToAll, sendBuf, recvBuf, sendCount, data};
}

}  // namespace hccl::api
