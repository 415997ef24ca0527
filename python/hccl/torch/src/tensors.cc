#include "tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "error.h"

namespace hccl::pytorch {
namespace {

std::optional<HcclDataType> library_type(at::ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kByte:
      return HCCL_DATA_TYPE_UINT8;
    case at::kChar:
      return HCCL_DATA_TYPE_INT8;
    case at::kShort:
      return HCCL_DATA_TYPE_INT16;
    case at::kUInt16:
      return HCCL_DATA_TYPE_UINT16;
    case at::kInt:
      return HCCL_DATA_TYPE_INT32;
    case at::kUInt32:
      return HCCL_DATA_TYPE_UINT32;
    case at::kLong:
      return HCCL_DATA_TYPE_INT64;
    case at::kUInt64:
      return HCCL_DATA_TYPE_UINT64;
    case at::kHalf:
    case at::kComplexHalf:
      return HCCL_DATA_TYPE_FP16;
    case at::kBFloat16:
      return HCCL_DATA_TYPE_BFP16;
    case at::kFloat:
    case at::kComplexFloat:
      return HCCL_DATA_TYPE_FP32;
    case at::kDouble:
    case at::kComplexDouble:
      return HCCL_DATA_TYPE_FP64;
    case at::kFloat8_e4m3fn:
      return HCCL_DATA_TYPE_FP8E4M3;
    case at::kFloat8_e5m2:
      return HCCL_DATA_TYPE_FP8E5M2;
    default:
      return std::nullopt;
  }
}

uint64_t numbers_in(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1);
}

bool is_packed(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor dense_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options());
}

// Returns whether each tensor begins where its predecessor ends, in one storage.
bool lie_in_a_row(const Tensors& tensors) {
  const char* end = nullptr;
  for (const at::Tensor& each : tensors) {
    const char* begin = static_cast<const char*>(each.const_data_ptr());
    if (!is_packed(each) || !each.is_alias_of(tensors[0])) return false;
    if (end != nullptr && begin != end) return false;
    end = begin + each.nbytes();
  }
  return true;
}

// Calls meet(i, j) for each pair of tensors whose ranges of memory, from first to last element,
// overlap.
template <typename Meet>
void each_meeting(const Tensors& tensors, Meet&& meet) {
  struct Extent {
    const char* begin;
    const char* end;
    size_t index;
  };
  std::vector<Extent> extents;
  for (const auto i : c10::irange(tensors.size())) {
    const at::Tensor& each = tensors[i];
    if (each.numel() == 0) continue;
    int64_t last = 0;
    for (const int64_t dim : c10::irange(each.dim()))
      last += (each.size(dim) - 1) * each.stride(dim);
    const auto* const begin = static_cast<const char*>(each.const_data_ptr());
    extents.push_back({begin, begin + (last + 1) * static_cast<int64_t>(each.element_size()), i});
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  for (auto one = extents.begin(); one != extents.end(); ++one) {
    for (auto other = one + 1; other != extents.end() && other->begin < one->end; ++other) {
      meet(one->index, other->index);
    }
  }
}

// Returns whether two tensors with overlapping ranges share elements. If torch cannot determine
// that from the strides, returns whether the tensors begin at the same address.
bool coincide(const at::Tensor& a, const at::Tensor& b) {
  const at::MemOverlapStatus status = at::get_overlap_status(a, b);
  return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial ||
         a.const_data_ptr() == b.const_data_ptr();
}

int64_t total(const Tensors& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& each : tensors) sum += each.numel();
  return sum;
}

}  // namespace

Elements in_blocks(const at::Tensor& tensor) {
  const std::optional<HcclDataType> type = library_type(tensor.scalar_type());
  if (type) return {tensor.data_ptr(), numbers_in(tensor), *type};
  return {tensor.data_ptr(), tensor.nbytes(), HCCL_DATA_TYPE_UINT8};
}

Elements to_move(const at::Tensor& tensor, int parts) {
  const auto divisor = static_cast<uint64_t>(parts);
  Elements part = in_blocks(tensor);
  part.count /= divisor;
  const uint64_t bytes = tensor.nbytes() / divisor;
  if (part.count > kMaxCount && bytes % sizeof(double) == 0) {
    return {part.data, bytes / sizeof(double), HCCL_DATA_TYPE_FP64};
  }
  return part;
}

Elements to_reduce(const at::Tensor& tensor) {
  return {tensor.data_ptr(), numbers_in(tensor), library_type(tensor.scalar_type()).value()};
}

bool is_reducible(at::ScalarType type) { return library_type(type).has_value(); }

at::Tensor packed(const at::Tensor& tensor) {
  if (is_packed(tensor)) return tensor;
  at::Tensor memory = dense_like(tensor);
  memory.copy_(tensor);
  return memory;
}

at::Tensor room_for(const at::Tensor& tensor) {
  return is_packed(tensor) ? tensor : dense_like(tensor);
}

void unpack(const at::Tensor& memory, const at::Tensor& tensor) {
  if (memory.is_same(tensor)) return;
  at::Tensor source = memory;
  at::Tensor target = tensor;
  for (const int64_t dim : c10::irange(tensor.dim())) {
    // In an expanded dimension, all indices refer to one element in memory.
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) {
      source = source.narrow(dim, 0, 1);
      target = target.narrow(dim, 0, 1);
    }
  }
  target.copy_(source);
}

at::Tensor room_for_all(const Tensors& tensors) {
  if (tensors.empty()) return at::empty({0});
  if (lie_in_a_row(tensors)) return tensors[0].as_strided({total(tensors)}, {1});
  return at::empty({total(tensors)}, tensors[0].options());
}

at::Tensor packed_all(const Tensors& tensors) {
  at::Tensor memory = room_for_all(tensors);
  if (!tensors.empty() && memory.is_alias_of(tensors[0])) return memory;
  int64_t offset = 0;
  for (const at::Tensor& each : tensors) {
    memory.narrow(0, offset, each.numel()).view(each.sizes()).copy_(each);
    offset += each.numel();
  }
  return memory;
}

void unpack_all(const at::Tensor& memory, const Tensors& tensors) {
  if (tensors.empty() || memory.is_alias_of(tensors[0])) return;
  int64_t offset = 0;
  for (const at::Tensor& each : tensors) {
    unpack(memory.narrow(0, offset, each.numel()).view(each.sizes()), each);
    offset += each.numel();
  }
}

void check_dense(at::TensorList tensors, const Refusal& refuse) {
  c10d::assertNonEmpty(refuse, tensors);
  for (const at::Tensor& each : tensors) {
    c10d::assertDense(refuse, {each});
    c10d::assertCPU(refuse, {each});
  }
}

void check_outputs(const Tensors& outputs, const Refusal& refuse) {
  for (const at::Tensor& each : outputs) {
    if (at::has_internal_overlap(each) == at::MemOverlap::Yes) {
      refuse("an output is expanded, so several of its elements are one in memory; clone() it");
    }
  }
  each_meeting(outputs, [&](size_t i, size_t j) {
    if (!coincide(outputs[i], outputs[j])) return;
    refuse("outputs " + std::to_string(std::min(i, j)) + " and " + std::to_string(std::max(i, j)) +
           " share elements in memory; pass tensors of their own");
  });
}

Tensors unchanged_by(const std::vector<Tensors>& outputs, Tensors inputs) {
  Tensors all = inputs;
  std::vector<size_t> operation;  // the operation of each tensor in `all`
  for (const auto i : c10::irange(inputs.size())) operation.push_back(i);
  for (const auto i : c10::irange(outputs.size())) {
    all.insert(all.end(), outputs[i].begin(), outputs[i].end());
    operation.resize(all.size(), i);
  }
  std::vector<bool> changed(inputs.size());
  each_meeting(all, [&](size_t a, size_t b) {
    if (operation[a] == operation[b] || (a < inputs.size()) == (b < inputs.size())) return;
    changed[std::min(a, b)] = true;
  });
  for (const auto i : c10::irange(inputs.size())) {
    if (changed[i]) inputs[i] = inputs[i].clone();
  }
  return inputs;
}

Tensors unchanged_by(const Tensors& outputs, Tensors inputs) {
  std::vector<Tensors> lists;
  for (const at::Tensor& each : outputs) lists.push_back({each});
  return unchanged_by(lists, std::move(inputs));
}

bool same_sizes(const Tensors& tensors) {
  for (const at::Tensor& each : tensors) {
    if (each.sizes() != tensors[0].sizes()) return false;
  }
  return true;
}

}  // namespace hccl::pytorch
