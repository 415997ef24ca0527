#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <optional>

namespace hccl::pytorch {

/// Memory of the device heap, which the ranks of a host share: operations on it do not copy.
/// Tensors in it may outlive every process group, and can be resized.
c10::Allocator* heap_allocator();

/// A new tensor in it, with undefined contents. CPU only.
at::Tensor heap_empty(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Tensors one behind the other in one block of it, which lives as long as any of them: consecutive
/// ones are reduced as one, in place.
class Pack {
 public:
  /// The block is allocated when the first tensor is added.
  explicit Pack(int64_t bytes) : bytes_(bytes) {}
  /// None if the block is full.
  std::optional<at::Tensor> add(int64_t numel, const at::TensorOptions& options);

 private:
  int64_t bytes_;
  int64_t used_ = 0;
  at::Tensor block_;
};

}  // namespace hccl::pytorch
