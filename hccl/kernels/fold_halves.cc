// fold() of fp16 and bf16.
#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold_halves.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hccl/kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

void fold_halves_here(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes,
                      std::byte* out) {
  switch (type) {
    case DataType::kFp16:
      return fold_floats_of<Fp16>(op, in, bytes, out);
    case DataType::kBfp16:
      return fold_floats_of<Bf16>(op, in, bytes, out);
    default:
      return;  // see fold.cc
  }
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {

HWY_EXPORT(fold_halves_here);
void fold_halves(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(fold_halves_here)(type, op, in, bytes, out);
}

}  // namespace hccl::kernels
#endif  // HWY_ONCE
