#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "error.h"
#include "hccl/hccl_framework.h"
#include "tensors.h"

namespace hccl::pytorch {

/// A c10d reduce operation for one element type, as the library has it.
struct Reduction {
  HcclReduceOp op;
  std::optional<HcclScale> scale;

  /// Refuses what has no meaning for the type, by name.
  static Reduction of(const c10d::ReduceOp& op, at::ScalarType type, const Refusal& refuse);

  /// The library's calls; `send` and `recv` have the same type.
  void all_reduce(const at::Tensor& tensor, HcclComm comm) const;
  void reduce(const at::Tensor& send, const at::Tensor& recv, uint32_t root, HcclComm comm) const;
  void reduce_scatter(const at::Tensor& send, const at::Tensor& recv, HcclComm comm) const;
};

}  // namespace hccl::pytorch
