// fold() of integers, and of bits of any type.
#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold_integers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hccl/kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

/// Signed and unsigned sums and products wrap around to the same bits, so both use the unsigned
/// code.
template <class Signed>
void fold_integers_of(bool is_signed, ReduceOp op, const Inputs& in, std::size_t bytes,
                      std::byte* out) {
  using Unsigned = hwy::MakeUnsigned<Signed>;
  switch (op) {
    case ReduceOp::kSum:
      return fold_all<Plain<Unsigned>, Sum>(in, bytes, out);
    case ReduceOp::kProd:
      if constexpr (sizeof(Signed) == 1) {
        return fold_all<Plain<std::uint16_t>, ProdOfBytes>(in, bytes, out);
      } else {
        return fold_all<Plain<Unsigned>, Prod>(in, bytes, out);
      }
    case ReduceOp::kMax:
      return is_signed ? fold_all<Plain<Signed>, MaxOfIntegers>(in, bytes, out)
                       : fold_all<Plain<Unsigned>, MaxOfIntegers>(in, bytes, out);
    case ReduceOp::kMin:
      return is_signed ? fold_all<Plain<Signed>, MinOfIntegers>(in, bytes, out)
                       : fold_all<Plain<Unsigned>, MinOfIntegers>(in, bytes, out);
    case ReduceOp::kLogicalAnd:
      return fold_all<Plain<Unsigned>, Logical<And>>(in, bytes, out);
    case ReduceOp::kLogicalOr:
      return fold_all<Plain<Unsigned>, Logical<Or>>(in, bytes, out);
    case ReduceOp::kLogicalXor:
      return fold_all<Plain<Unsigned>, Logical<Xor>>(in, bytes, out);
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return;  // fold() handles kAvg, fold_bits() bitwise reductions
  }
}

void fold_integers_here(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes,
                        std::byte* out) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return fold_integers_of<std::int8_t>(type == DataType::kInt8, op, in, bytes, out);
    case DataType::kInt16:
    case DataType::kUint16:
      return fold_integers_of<std::int16_t>(type == DataType::kInt16, op, in, bytes, out);
    case DataType::kInt32:
    case DataType::kUint32:
      return fold_integers_of<std::int32_t>(type == DataType::kInt32, op, in, bytes, out);
    case DataType::kInt64:
    case DataType::kUint64:
      return fold_integers_of<std::int64_t>(type == DataType::kInt64, op, in, bytes, out);
    default:
      return;  // see fold.cc
  }
}

void fold_bits_here(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  using Bits = Plain<std::uint64_t>;
  if (op == ReduceOp::kBitAnd) return fold_all<Bits, And>(in, bytes, out);
  if (op == ReduceOp::kBitOr) return fold_all<Bits, Or>(in, bytes, out);
  return fold_all<Bits, Xor>(in, bytes, out);
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {

HWY_EXPORT(fold_integers_here);
HWY_EXPORT(fold_bits_here);
void fold_integers(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes,
                   std::byte* out) {
  HWY_DYNAMIC_DISPATCH(fold_integers_here)(type, op, in, bytes, out);
}
void fold_bits(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(fold_bits_here)(op, in, bytes, out);
}

}  // namespace hccl::kernels
#endif  // HWY_ONCE
