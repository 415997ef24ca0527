#include "hccl/api/operations.h"

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"

namespace hccl::api {
namespace {

using schedule::Op;

Status check_stream(aclrtStream stream) {
  if (stream == nullptr) return {};
  return Status(Code::kNotSupport, "stream must be NULL: created streams are not there yet");
}

// Buffers are needed only where there is something in them.
Status need(const void* buffer, std::uint64_t count, const char* argument) {
  return buffer == nullptr && count != 0 ? null_pointer(argument) : Status();
}

Status check_peer(const core::Communicator& comm, std::uint32_t peer, const char* argument) {
  HCCL_RETURN_IF_ERROR(check_rank(peer, comm.size(), argument));
  if (static_cast<int>(peer) == comm.rank()) {
    return Status(Code::kPara, std::string(argument) + " is the caller itself");
  }
  return {};
}

}  // namespace

Status all_reduce(core::Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                  HcclDataType type, HcclReduceOp op, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({Op::kAllReduce, sendBuf, recvBuf, count, data, fold, 0, 0});
}

Status broadcast(core::Communicator& comm, void* buf, std::uint64_t count, HcclDataType type,
                 std::uint32_t root, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(buf, count, "buf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run(
      {Op::kBroadcast, buf, buf, count, data, ReduceOp::kSum, static_cast<int>(root), 0});
}

Status reduce_scatter(core::Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                      HcclDataType type, HcclReduceOp op, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({Op::kReduceScatter, sendBuf, recvBuf, count, data, fold, 0, 0});
}

Status all_gather(core::Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
                  HcclDataType type, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({Op::kAllGather, sendBuf, recvBuf, count, data, ReduceOp::kSum, 0, 0});
}

Status reduce(core::Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
              HcclDataType type, HcclReduceOp op, std::uint32_t root, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  if (static_cast<int>(root) == comm.rank()) HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({Op::kReduce, sendBuf, recvBuf, count, data, fold, static_cast<int>(root), 0});
}

Status scatter(core::Communicator& comm, void* sendBuf, void* recvBuf, std::uint64_t count,
               HcclDataType type, std::uint32_t root, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(root, comm.size(), "root"));
  if (static_cast<int>(root) == comm.rank()) HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run(
      {Op::kScatter, sendBuf, recvBuf, count, data, ReduceOp::kSum, static_cast<int>(root), 0});
}

Status all_to_all(core::Communicator& comm, const void* sendBuf, std::uint64_t sendCount,
                  HcclDataType sendType, void* recvBuf, std::uint64_t recvCount,
                  HcclDataType recvType, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, sendCount, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, recvCount, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(sendCount, "sendCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(sendType, "sendType"));
  if (recvType != sendType) return Status(Code::kPara, "recvType differs from sendType");
  if (recvCount != sendCount) return Status(Code::kPara, "recvCount differs from sendCount");
  if (sendCount != 0 && sendBuf == recvBuf) return Status(Code::kPara, "recvBuf is sendBuf");
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({Op::kAllToAll, sendBuf, recvBuf, sendCount, data, ReduceOp::kSum, 0, 0});
}

Status send(core::Communicator& comm, void* sendBuf, std::uint64_t count, HcclDataType type,
            std::uint32_t destRank, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(sendBuf, count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_peer(comm, destRank, "destRank"));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.send(static_cast<int>(destRank), sendBuf, count, data);
}

Status recv(core::Communicator& comm, void* recvBuf, std::uint64_t count, HcclDataType type,
            std::uint32_t srcRank, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(need(recvBuf, count, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_peer(comm, srcRank, "srcRank"));
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.recv(static_cast<int>(srcRank), recvBuf, count, data);
}

Status barrier(core::Communicator& comm, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(check_stream(stream));
  return comm.run({});
}

}  // namespace hccl::api
