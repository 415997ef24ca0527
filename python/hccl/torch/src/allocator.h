#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <optional>

namespace hccl::pytorch {

/// Returns an allocator of the device heap. The ranks of a host share this heap, so operations do
/// not copy the memory. Tensors in it may outlive every process group, and can be resized.
c10::Allocator* heap_allocator();

/// Returns a new tensor in this memory, with undefined contents. CPU only.
at::Tensor heap_empty(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Allocates tensors one after another in one block of this memory, so that consecutive tensors can
/// be reduced as one, in place. The block lives as long as any of its tensors.
class Pack {
 public:
  /// The block is allocated when the first tensor is added.
  explicit Pack(int64_t bytes) : bytes_(bytes) {}
  /// Returns nothing if the block is full.
  std::optional<at::Tensor> add(int64_t numel, const at::TensorOptions& options);

 private:
  int64_t bytes_;
  int64_t used_ = 0;
  at::Tensor block_;
};

}  // namespace hccl::pytorch
