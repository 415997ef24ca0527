// Reduces a list of tensors. Small tensors are packed into one buffer; large ones are not copied.
#include <cstring>
#include <string>
#include <vector>

#include "compare.h"
#include "hccl/hccl_framework.h"
#include "kernel.h"
#include "memory.h"

namespace hccl::tf {
namespace {

// Above this size a separate allreduce costs less than two copies.
constexpr std::size_t kPacked = 256 << 10;

class GroupedAllReduce final : public Scaling {
 public:
  using Scaling::Scaling;

 private:
  struct Part {
    void *in, *out;
    std::size_t count, bytes;
  };

  int alike(const OpKernelContext&) const override { return 0; }  // compare_once() compares them

  Status run(OpKernelContext* context, HcclComm comm) override {
    TF_RETURN_IF_ERROR(compare_once(comm, Form::kGrouped,
                                    shapes_of(*context, context->num_outputs()),
                                    context->op_kernel().name(), names()));
    type_ = to_type(context->input_dtype(0));
    std::vector<Part> parts;
    std::size_t packed = 0, number = 0;
    for (int i = 0; i < context->num_outputs(); ++i) {
      Part part{nullptr, nullptr, count_of(context->input(i)),
                context->input(i).tensor_data().size()};
      TF_RETURN_IF_ERROR(forward(context, i, &part.in, &part.out));
      if (part.bytes <= kPacked) packed += part.bytes, ++number;
      parts.push_back(part);
    }
    if (number > 1) TF_RETURN_IF_ERROR(reduce_packed(parts, packed, comm));
    for (const Part& part : parts) {
      if (part.bytes <= kPacked && number > 1) continue;
      TF_RETURN_IF_ERROR(all_reduce(part.in, part.out, part.count, type_, comm));
    }
    return absl::OkStatus();
  }

  Status reduce_packed(const std::vector<Part>& parts, std::size_t bytes, HcclComm comm) {
    TF_RETURN_IF_ERROR(buffer_.resize(bytes));
    std::size_t at = 0, count = 0;
    for (const Part& part : parts) {
      if (part.bytes > kPacked) continue;
      std::memcpy(buffer_.data() + at, part.in, part.bytes);
      at += part.bytes;
      count += part.count;
    }
    TF_RETURN_IF_ERROR(all_reduce(buffer_.data(), buffer_.data(), count, type_, comm));
    at = 0;
    for (const Part& part : parts) {
      if (part.bytes > kPacked) continue;
      std::memcpy(part.out, buffer_.data() + at, part.bytes);
      at += part.bytes;
    }
    return absl::OkStatus();
  }

  HcclDataType type_ = HCCL_DATA_TYPE_FP32;
  Buffer buffer_;  // only the communicator's thread, which calls run(), uses these members
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HcclGroupedAllReduce").Device(::tensorflow::DEVICE_CPU),
                        GroupedAllReduce);

}  // namespace hccl::tf
