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

/// Returns the elements for calls that move blocks. A tensor whose type the library lacks is passed
/// as bytes. Even large tensors need no wider elements, because the library limits only the count
/// of each block.
Elements in_blocks(const at::Tensor& tensor);
/// Returns the elements for moving `parts` equal parts, one at a time. It is as in_blocks(), but
/// has wider elements if a part has more elements than the library can count. The count is the
/// count of one part.
Elements to_move(const at::Tensor& tensor, int parts = 1);
/// Returns the elements for reducing: complex numbers are pairs, bools are bytes. Other types stay.
Elements to_reduce(const at::Tensor& tensor);
/// Whether the library can reduce this type.
bool is_reducible(at::ScalarType type);

/// Returns the tensor itself if it is contiguous, else a contiguous copy.
at::Tensor packed(const at::Tensor& tensor);
/// Returns the tensor itself if it is contiguous, else contiguous memory for its elements.
at::Tensor room_for(const at::Tensor& tensor);
/// Copies the contents of memory from packed() or room_for() into the tensor.
void unpack(const at::Tensor& memory, const at::Tensor& tensor);

/// Returns contiguous memory for all elements of the tensors, one after another. This is the
/// tensors' own memory if they already lie so.
at::Tensor room_for_all(const Tensors& tensors);
/// As room_for_all(), but the memory contains the tensors' elements.
at::Tensor packed_all(const Tensors& tensors);
void unpack_all(const at::Tensor& memory, const Tensors& tensors);

bool same_sizes(const Tensors& tensors);

/// Refuses an empty list, and tensors that are sparse or not on the CPU. c10d's own assertions
/// check only the first tensor.
void check_dense(at::TensorList tensors, const Refusal& refuse);
/// Refuses outputs in which two elements share memory: an expanded tensor, or tensors that share
/// elements. Views of different elements of one memory, such as t[:, 0] and t[:, 1], are allowed.
void check_outputs(const Tensors& outputs, const Refusal& refuse);
/// Returns the inputs of operations that run one after another; operation i writes outputs[i].
/// Copies each input that another operation may write, so that every operation gets the original
/// values.
Tensors unchanged_by(const std::vector<Tensors>& outputs, Tensors inputs);
Tensors unchanged_by(const Tensors& outputs, Tensors inputs);

}  // namespace hccl::pytorch
