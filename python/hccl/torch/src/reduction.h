#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "error.h"
#include "hccl/hccl_framework.h"
#include "tensors.h"

namespace hccl::pytorch {

/// The library's form of a c10d reduce operation for one element type.
struct Reduction {
  HcclReduceOp op;
  std::optional<HcclScale> scale;

  /// Converts `op`. Rejects an operation that is not defined for the type; the error text names
  /// operation and type.
  static Reduction of(const c10d::ReduceOp& op, at::ScalarType type, const Refusal& refuse);

  /// Calls the library; `send` and `recv` have the same type.
  void all_reduce(const at::Tensor& tensor, HcclComm comm) const;
  void reduce(const at::Tensor& send, const at::Tensor& recv, uint32_t root, HcclComm comm) const;
  void reduce_scatter(const at::Tensor& send, const at::Tensor& recv, HcclComm comm) const;
};

}  // namespace hccl::pytorch
