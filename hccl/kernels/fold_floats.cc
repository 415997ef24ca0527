// fold() of fp32 and fp64.
#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold_floats.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hccl/kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

void fold_floats_here(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes,
                      std::byte* out) {
  switch (type) {
    case DataType::kFp32:
      return fold_floats_of<Plain<float>>(op, in, bytes, out);
    case DataType::kFp64:
      return fold_floats_of<Plain<double>>(op, in, bytes, out);
    default:
      return;  // see fold.cc
  }
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {

HWY_EXPORT(fold_floats_here);
void fold_floats(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(fold_floats_here)(type, op, in, bytes, out);
}

}  // namespace hccl::kernels
#endif  // HWY_ONCE
