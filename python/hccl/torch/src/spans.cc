#include "spans.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <sstream>

namespace hccl::pytorch {
namespace {

const char* const kNoMemory =
    " has no memory of its own, like a DTensor of FSDP2; fused optimizers take plain tensors only, "
    "so use an optimizer of torch.optim";

void run_shares(uint64_t shares, HcclOptimBody body, void* work) {
  at::parallel_for(0, static_cast<int64_t>(shares), 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) body(work, static_cast<uint64_t>(share));
  });
}

HcclOptimSpan gradient_span(const at::Tensor& gradient) {
  HcclOptimSpan span{};
  span.gradient = memory_of(gradient);
  span.count = static_cast<uint64_t>(gradient.numel());
  span.type = type_of(gradient, false);
  return span;
}

}  // namespace

std::string fault_of_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const auto type = parameter.scalar_type();
  std::ostringstream why;
  if (gradient.layout() != at::kStrided) {
    why << "its gradient is sparse; fused optimizers take dense gradients only";
  } else if (!parameter.device().is_cpu() || !gradient.device().is_cpu()) {
    why << "it is on " << parameter.device() << ", its gradient on " << gradient.device()
        << "; fused optimizers run on the CPU";
  } else if (!has_memory(parameter) || !has_memory(gradient)) {
    why << (has_memory(parameter) ? "its gradient" : "it") << kNoMemory;
  } else if (at::isComplexType(type)) {
    why << "it is complex; fused optimizers take real numbers only";
  } else if (!is_steppable(type)) {
    why << "its type is " << type << "; fused optimizers take float32, float64, bfloat16, float16";
  } else if (gradient.scalar_type() != type) {
    why << "its type is " << type << ", that of its gradient " << gradient.scalar_type();
  } else {
    why << "its elements do not lie together (sizes " << parameter.sizes() << ", strides "
        << parameter.strides() << ")";
  }
  return why.str();
}

bool rows_are_contiguous(const at::Tensor& tensor) {
  return tensor.is_contiguous() ||
         (tensor.numel() > 0 && tensor.stride(0) == tensor.numel() / tensor.size(0));
}

HcclOptimType type_of(const at::Tensor& parameter, bool has_master) {
  switch (parameter.scalar_type()) {
    case at::kDouble:
      return HCCL_OPTIM_FP64;
    case at::kBFloat16:
      return has_master ? HCCL_OPTIM_BF16_MASTER : HCCL_OPTIM_BF16;
    case at::kHalf:
      return has_master ? HCCL_OPTIM_FP16_MASTER : HCCL_OPTIM_FP16;
    default:
      return HCCL_OPTIM_FP32;
  }
}

HcclOptimThreads torch_threads() {
  return {&run_shares, static_cast<uint64_t>(at::get_num_threads())};
}

HcclOptimNorm norms(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> dense;
  std::vector<HcclOptimSpan> spans;
  for (const at::Tensor& tensor : tensors) {
    dense.push_back(can_step(tensor, tensor) ? tensor : tensor.to_dense().contiguous());
    TORCH_CHECK(is_steppable(tensor.scalar_type()), "hccl: no norm of ", tensor.scalar_type());
    TORCH_CHECK(has_memory(dense.back()), "hccl: gradient ", spans.size(), kNoMemory);
    spans.push_back(gradient_span(dense.back()));
  }
  const HcclOptimThreads threads = torch_threads();
  HcclOptimNorm norm;
  HcclOptimNorms(spans.data(), spans.size(), &threads, &norm);
  return norm;
}

void scale(const std::vector<at::Tensor>& tensors, double factor) {
  std::vector<HcclOptimSpan> spans;
  for (at::Tensor tensor : tensors) {
    if (can_step(tensor, tensor)) {
      spans.push_back(gradient_span(tensor));
    } else {
      tensor.mul_(factor);
    }
  }
  const HcclOptimThreads threads = torch_threads();
  HcclOptimScale(spans.data(), spans.size(), factor, &threads);
}

}  // namespace hccl::pytorch
