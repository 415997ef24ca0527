// Converts tensors to the spans that the optimizers' kernels take.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "hccl/hccl_optim.h"

namespace hccl::pytorch {

// Functions that run for every tensor of every step are inline and read as little as possible,
// because they take most of a step's time if there are thousands of small tensors.

/// Returns the gradient of a leaf or of any other tensor; undefined if there is none.
inline const at::Tensor& gradient_of(const at::Tensor& parameter) {
  return std::as_const(*parameter.unsafeGetTensorImpl()).grad();
}
/// Returns the address of a tensor's elements, for writing.
inline void* memory_of(const at::Tensor& tensor) {
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  auto* const base = static_cast<std::byte*>(impl.unsafe_storage().mutable_data());
  return base + impl.storage_offset() * static_cast<int64_t>(impl.itemsize());
}
/// Returns whether the tensor's elements are at memory_of(). Python subclasses that replace
/// operators, such as the DTensors of FSDP2, have their elements in other tensors.
inline bool has_memory(const at::Tensor& tensor) {
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.has_storage() && !impl.key_set().has(c10::DispatchKey::Python) &&
         (impl.unsafe_storage().data() != nullptr || impl.numel() == 0);
}
inline bool is_steppable(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}
/// Returns whether a parameter can be stepped with a gradient: both are strided, in the CPU's
/// memory and of one floating type, and the parameter has no gaps.
inline bool can_step(const at::Tensor& parameter, const at::Tensor& gradient) {
  const auto type = parameter.scalar_type();
  return gradient.layout() == at::kStrided && gradient.scalar_type() == type &&
         is_steppable(type) && parameter.is_cpu() && gradient.is_cpu() && has_memory(parameter) &&
         has_memory(gradient) &&
         (parameter.is_contiguous() || parameter.is_non_overlapping_and_dense());
}
/// Returns whether, for every i, element i has the same offset in both tensors.
inline bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() != b.numel()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return a.sizes() == b.sizes() && a.strides() == b.strides();
}

/// Returns the reason for which can_step() is false.
std::string fault_of_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

/// Returns whether the elements of each row (index of the first dimension) are contiguous.
bool rows_are_contiguous(const at::Tensor& tensor);

/// Returns the type of a parameter, for which is_steppable() must be true.
HcclOptimType type_of(const at::Tensor& parameter, bool has_master);

/// Returns the library's interface to torch's own pool, with as many threads as torch's operators
/// use.
HcclOptimThreads torch_threads();

/// Computes the sum of squares and the largest magnitude of tensors of any types and layouts.
HcclOptimNorm norms(const std::vector<at::Tensor>& tensors);
void scale(const std::vector<at::Tensor>& tensors, double factor);

}  // namespace hccl::pytorch
