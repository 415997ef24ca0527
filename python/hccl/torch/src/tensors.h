#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hccl/hccl_types.h"

namespace hccl::pytorch {

class Refusal;
using Tensors = std::vector<at::Tensor>;

/// The memory of a contiguous tensor as the library takes it.
struct Elements {
  void* data;
  uint64_t count;
  HcclDataType type;
};

/// For moving in blocks: every type; types that the library does not have are bytes. The library
/// limits the count of a block, not of all: the type does not depend on how many there are.
Elements in_blocks(const at::Tensor& tensor);
/// For moving one of so many equal parts: the same, or wider numbers where the library cannot count
/// a part's. The count is that of a part.
Elements to_move(const at::Tensor& tensor, int parts = 1);
/// For reducing: complex numbers are pairs, truth values are bytes. Other types are as they are.
Elements to_reduce(const at::Tensor& tensor);
/// Whether the library can reduce this type.
bool is_reducible(at::ScalarType type);

/// The tensor itself if it is contiguous, else a contiguous copy.
at::Tensor packed(const at::Tensor& tensor);
/// The tensor itself if it is contiguous, else contiguous memory for its elements.
at::Tensor room_for(const at::Tensor& tensor);
/// Puts what is in the memory from packed() or room_for() into the tensor.
void unpack(const at::Tensor& memory, const at::Tensor& tensor);

/// Contiguous memory for all elements of the tensors, one after the other: the tensors' own memory
/// where they lie so already.
at::Tensor room_for_all(const Tensors& tensors);
/// The same with their elements.
at::Tensor packed_all(const Tensors& tensors);
void unpack_all(const at::Tensor& memory, const Tensors& tensors);

bool same_sizes(const Tensors& tensors);

/// Refuses outputs of which two elements are one in memory: an expanded tensor, or tensors that
/// share elements. Views with other elements of the same memory, as t[:, 0] and t[:, 1], may be.
void check_outputs(const Tensors& outputs, const Refusal& refuse);
/// The inputs of operations that run one after the other; operation i writes outputs[i]. Inputs
/// that another operation may write are copied, so that each is what it was before the first one.
Tensors unchanged_by(const std::vector<Tensors>& outputs, Tensors inputs);
Tensors unchanged_by(const Tensors& outputs, Tensors inputs);

}  // namespace hccl::pytorch
