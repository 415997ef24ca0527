#include "hccl/base/types.h"

#include <array>

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
  constexpr std::array<std::string_view, 11> kWords{
      "allreduce", "broadcast", "reduce_scatter",   "allgather",   "reduce",    "scatter",
      "alltoall",  "barrier",   "reduce_scatter_v", "allgather_v", "alltoall_v"};
  static_assert(kWords.size() == static_cast<std::size_t>(Op::kAllToAllV) + 1);
  const auto number = static_cast<std::size_t>(op);
  return number < kWords.size() ? kWords[number] : "unknown operation";
}

}  // namespace hccl
