#include "allocator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstring>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {
namespace {

// Also called while the process exits. Does nothing in a forked child.
void free_block(void* block) { static_cast<void>(HcclMemFree(block)); }

class HeapAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = nullptr;
    if (bytes > 0) {
      const HcclResult result = HcclMemAlloc(&block, bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, result == HCCL_SUCCESS,
                       "hccl: cannot allocate memory that ranks share: ", HcclGetLastErrorText());
    }
    return {block, block, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    std::memcpy(dest, src, count);
  }
};

}  // namespace

c10::Allocator* heap_allocator() {
  static HeapAllocator* const allocator = new HeapAllocator;  // tensors may outlive statics
  return allocator;
}

at::Tensor heap_empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(options.device().is_cpu(), "hccl: memory that ranks share is on the CPU, not on ",
              options.device());
  constexpr c10::DispatchKeySet kDense(c10::DispatchKey::CPU);
  return at::detail::empty_generic(sizes, heap_allocator(), kDense,
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

std::optional<at::Tensor> Pack::add(int64_t numel, const at::TensorOptions& options) {
  const auto element = static_cast<int64_t>(options.dtype().itemsize());
  if (numel > (bytes_ - used_) / element || used_ % element != 0) return std::nullopt;
  if (!block_.defined()) block_ = heap_empty({bytes_}, at::kByte);
  auto* begin = static_cast<std::byte*>(block_.data_ptr()) + used_;
  used_ += numel * element;
  // The tensor has a storage of its own, because DDP's views of the tensor begin at 0.
  return at::from_blob(begin, {numel}, [block = block_](void*) {}, options);
}

}  // namespace hccl::pytorch
