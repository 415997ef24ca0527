#include "hccl/base/types.h"

namespace hccl {

std::string_view to_string(DataType type) {
  switch (type) {
#define HCCL_TYPE(name, number, bytes, word) \
  case DataType::name:                       \
    return word;
    HCCL_DATA_TYPES(HCCL_TYPE)
#undef HCCL_TYPE
  }
  return "unknown";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
#define HCCL_OP(name, number, word) \
  case ReduceOp::name:              \
    return word;
    HCCL_REDUCE_OPS(HCCL_OP)
#undef HCCL_OP
  }
  return "unknown";
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return "allreduce";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kReduceScatter:
      return "reduce_scatter";
    case Op::kAllGather:
      return "allgather";
    case Op::kReduce:
      return "reduce";
    case Op::kScatter:
      return "scatter";
    case Op::kAllToAll:
      return "alltoall";
    case Op::kBarrier:
      return "barrier";
    case Op::kReduceScatterV:
      return "reduce_scatter_v";
    case Op::kAllGatherV:
      return "allgather_v";
    case Op::kAllToAllV:
      return "alltoall_v";
  }
  return "unknown operation";
}

}  // namespace hccl
