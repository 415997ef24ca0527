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

/// The memory of a contiguous tensor, as arguments for the library.
struct Elements {
  void* data;
  uint64_t count;
  HcclDataType type;
};

/// Returns the elements for calls that move blocks. If the library lacks the tensor's type, the
/// elements are bytes. Large tensors need no wider elements, because the library limits only the
/// count of each block.
Elements in_blocks(const at::Tensor& tensor);
/// Returns the elements of one of `parts` equal parts, for calls that move such parts. Like
/// in_blocks(), but with wider elements if the part has more elements than the library can count.
Elements to_move(const at::Tensor& tensor, int parts = 1);
/// Returns the elements for reductions. Complex numbers become pairs, and bools become bytes.
Elements to_reduce(const at::Tensor& tensor);
/// Returns whether the library can reduce this type.
bool is_reducible(at::ScalarType type);

/// The number of elements to or from each rank, and the offsets of these blocks.
struct Blocks {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> offsets;

  void add(uint64_t count) {
    offsets.push_back(counts.empty() ? 0 : offsets.back() + counts.back());
    counts.push_back(count);
  }
  static Blocks only(int ranks, int64_t rank, uint64_t count) {
    Blocks blocks;
    for (int i = 0; i < ranks; ++i) blocks.add(i == rank ? count : 0);
    return blocks;
  }
  static Blocks of(const Tensors& tensors) {
    Blocks blocks;
    for (const at::Tensor& each : tensors) blocks.add(in_blocks(each).count);
    return blocks;
  }
  /// Counts the elements of each rank's rows in a contiguous tensor. `rows` has the numbers of
  /// rows; if it is empty, all ranks have the same number.
  static Blocks of_rows(const at::Tensor& tensor, const std::vector<int64_t>& rows, int ranks) {
    Blocks blocks;
    const uint64_t all = in_blocks(tensor).count;
    const int64_t total = tensor.dim() == 0 ? 1 : tensor.size(0);
    const uint64_t row = total == 0 ? 0 : all / static_cast<uint64_t>(total);
    for (int i = 0; i < ranks; ++i) {
      blocks.add(rows.empty() ? all / static_cast<uint64_t>(ranks)
                              : static_cast<uint64_t>(rows[static_cast<size_t>(i)]) * row);
    }
    return blocks;
  }
};

/// Returns the tensor itself if it is contiguous, else a contiguous copy.
at::Tensor packed(const at::Tensor& tensor);
/// Returns the tensor itself if it is contiguous, else contiguous memory for its elements.
at::Tensor room_for(const at::Tensor& tensor);
/// Copies the contents of memory from packed() or room_for() into the tensor.
void unpack(const at::Tensor& memory, const at::Tensor& tensor);

/// Returns contiguous memory for all elements of the tensors, one after another: the tensors' own
/// memory if they already lie one after another, otherwise new memory.
at::Tensor room_for_all(const Tensors& tensors);
/// Like room_for_all(), but the memory contains the tensors' elements.
at::Tensor packed_all(const Tensors& tensors);
void unpack_all(const at::Tensor& memory, const Tensors& tensors);

bool same_sizes(const Tensors& tensors);

/// Rejects an empty list, and tensors that are sparse or not on the CPU. c10d's own assertions
/// check only the first tensor.
void check_dense(at::TensorList tensors, const Refusal& refuse);
/// Rejects outputs in which two elements share memory: an expanded tensor, or tensors that share
/// elements. Views of different elements, such as t[:, 0] and t[:, 1], are allowed.
void check_outputs(const Tensors& outputs, const Refusal& refuse);
/// Returns the inputs of operations that run one after another. Operation i writes outputs[i].
/// Inputs that another operation may overwrite are copied, so that every operation reads the
/// original values.
Tensors unchanged_by(const std::vector<Tensors>& outputs, Tensors inputs);
Tensors unchanged_by(const Tensors& outputs, Tensors inputs);

}  // namespace hccl::pytorch
