#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hccl/hccl_types.h"

namespace hccl::pytorch {

class Refusal;
using Tensors = std::vector<at::Tensor>;

/// The largest count that the library accepts.
constexpr uint64_t kMaxCount = 0x7FFFFFFF;

/// The memory of a contiguous tensor in the form that the library takes.
struct Elements {
  void* data;
  uint64_t count;
  HcclDataType type;
};

/// For calls that move blocks. A tensor whose type the library lacks is passed as bytes. Large
/// tensors need no wider elements, because the library limits the count of each block only.
Elements in_blocks(const at::Tensor& tensor);
/// For moving `parts` equal parts, one at a time: as in_blocks(), but with wider elements if the
/// library cannot count the elements of a part. The count is that of a part.
Elements to_move(const at::Tensor& tensor, int parts = 1);
/// For reducing: complex numbers are pairs, truth values are bytes. Other types stay.
Elements to_reduce(const at::Tensor& tensor);
/// Whether the library can reduce this type.
bool is_reducible(at::ScalarType type);

/// The tensor itself if it is contiguous, else a contiguous copy.
at::Tensor packed(const at::Tensor& tensor);
/// The tensor itself if it is contiguous, else contiguous memory for its elements.
at::Tensor room_for(const at::Tensor& tensor);
/// Copies the contents of memory from packed() or room_for() into the tensor.
void unpack(const at::Tensor& memory, const at::Tensor& tensor);

/// Contiguous memory for all elements of the tensors, one after another: the tensors' own memory if
/// it is so already.
at::Tensor room_for_all(const Tensors& tensors);
/// As room_for_all(), with the tensors' elements in it.
at::Tensor packed_all(const Tensors& tensors);
void unpack_all(const at::Tensor& memory, const Tensors& tensors);

bool same_sizes(const Tensors& tensors);

/// Refuses an empty list, and tensors that are sparse or not on the CPU. c10d's own assertions look
/// at the first tensor only.
void check_dense(at::TensorList tensors, const Refusal& refuse);
/// Refuses outputs in which two elements share memory: an expanded tensor, or tensors that share
/// elements. Views of different elements of one memory, such as t[:, 0] and t[:, 1], are allowed.
void check_outputs(const Tensors& outputs, const Refusal& refuse);
/// The inputs of operations that run one after another; operation i writes outputs[i]. Copies each
/// input that another operation may write, so that every operation gets the original values.
Tensors unchanged_by(const std::vector<Tensors>& outputs, Tensors inputs);
Tensors unchanged_by(const Tensors& outputs, Tensors inputs);

}  // namespace hccl::pytorch
