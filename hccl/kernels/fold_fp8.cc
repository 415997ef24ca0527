// fold() of 8-bit floats.
#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold_fp8.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hccl/kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

void fold_fp8_here(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes,
                   std::byte* out) {
  switch (type) {
    case DataType::kFp8E4M3:
      return fold_floats_of<Fp8E4M3>(op, in, bytes, out);
    case DataType::kFp8E5M2:
      return fold_floats_of<Fp8E5M2>(op, in, bytes, out);
    default:
      return;  // see fold.cc
  }
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {

HWY_EXPORT(fold_fp8_here);
void fold_fp8(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(fold_fp8_here)(type, op, in, bytes, out);
}

}  // namespace hccl::kernels
#endif  // HWY_ONCE
