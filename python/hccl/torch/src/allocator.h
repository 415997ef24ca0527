#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorOptions.h>

namespace hccl::pytorch {

/// Memory of the device heap, which the ranks of a host share: operations on it do not copy.
/// Tensors in it may outlive every process group, and can be resized.
c10::Allocator* heap_allocator();

/// A new tensor in it, with undefined contents. CPU only.
at::Tensor heap_empty(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace hccl::pytorch
