// Element types and reduce operations, with HCCL's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hccl {

// name, HCCL's number, bytes, word
#define HCCL_DATA_TYPES(X)      \
  X(kInt8, 0, 1, "int8")        \
  X(kInt16, 1, 2, "int16")      \
  X(kInt32, 2, 4, "int32")      \
  X(kFp16, 3, 2, "fp16")        \
  X(kFp32, 4, 4, "fp32")        \
  X(kInt64, 5, 8, "int64")      \
  X(kUint64, 6, 8, "uint64")    \
  X(kUint8, 7, 1, "uint8")      \
  X(kUint16, 8, 2, "uint16")    \
  X(kUint32, 9, 4, "uint32")    \
  X(kFp64, 10, 8, "fp64")       \
  X(kBfp16, 11, 2, "bfp16")     \
  X(kInt128, 12, 16, "int128")  \
  X(kHif8, 14, 1, "hif8")       \
  X(kFp8E4M3, 15, 1, "fp8e4m3") \
  X(kFp8E5M2, 16, 1, "fp8e5m2") \
  X(kFp8E8M0, 17, 1, "fp8e8m0")

enum class DataType : std::uint8_t {
#define HCCL_TYPE(name, number, bytes, word) name = number,
  HCCL_DATA_TYPES(HCCL_TYPE)
#undef HCCL_TYPE
};

// HCCL's reductions; those with numbers from 16 on are additions of hccl_framework.h.
#define HCCL_REDUCE_OPS(X)   \
  X(kSum, 0, "sum")          \
  X(kProd, 1, "prod")        \
  X(kMax, 2, "max")          \
  X(kMin, 3, "min")          \
  X(kAvg, 16, "avg")         \
  X(kBitAnd, 17, "band")     \
  X(kBitOr, 18, "bor")       \
  X(kBitXor, 19, "bxor")     \
  X(kLogicalAnd, 20, "land") \
  X(kLogicalOr, 21, "lor")   \
  X(kLogicalXor, 22, "lxor")

enum class ReduceOp : std::uint8_t {
#define HCCL_OP(name, number, word) name = number,
  HCCL_REDUCE_OPS(HCCL_OP)
#undef HCCL_OP
};

/// The collective operations.
enum class Op : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kReduce,
  kScatter,
  kAllToAll,
  kBarrier,
  // V operations: the blocks have different lengths.
  kReduceScatterV,
  kAllGatherV,
  kAllToAllV,
};

/// Bytes of an element; 0 for an unknown type.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
#define HCCL_TYPE(name, number, bytes, word) \
  case DataType::name:                       \
    return bytes;
    HCCL_DATA_TYPES(HCCL_TYPE)
#undef HCCL_TYPE
  }
  return 0;
}
constexpr bool floating(DataType type) {
  return type == DataType::kFp16 || type == DataType::kFp32 || type == DataType::kFp64 ||
         type == DataType::kBfp16 || type == DataType::kHif8 || type == DataType::kFp8E4M3 ||
         type == DataType::kFp8E5M2 || type == DataType::kFp8E8M0;
}
constexpr bool bitwise(ReduceOp op) { return op >= ReduceOp::kBitAnd && op <= ReduceOp::kBitXor; }
/// Whether the operation treats its inputs as true or false; its results are 0 and 1.
constexpr bool logical(ReduceOp op) {
  return op >= ReduceOp::kLogicalAnd && op <= ReduceOp::kLogicalXor;
}

std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Op op);  ///< "allreduce", "reduce_scatter", …
/// Returns the type with this HCCL number; nothing if there is none.
constexpr std::optional<DataType> data_type(int number) {
#define HCCL_TYPE(name, value, bytes, word) \
  if (number == (value)) return DataType::name;
  HCCL_DATA_TYPES(HCCL_TYPE)
#undef HCCL_TYPE
  return std::nullopt;
}
/// Returns the reduction with this number; nothing if there is none.
constexpr std::optional<ReduceOp> reduce_op(int number) {
#define HCCL_OP(name, value, word) \
  if (number == (value)) return ReduceOp::name;
  HCCL_REDUCE_OPS(HCCL_OP)
#undef HCCL_OP
  return std::nullopt;
}

}  // namespace hccl
