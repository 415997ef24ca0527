// The kernels of fused lists; fused_list.h describes how they work together.
#include <tensorflow/core/framework/op_kernel.h>

#include <string>

#include "fused_list.h"
#include "kernel.h"

namespace hccl::tf {
namespace {

class FusedPush final : public ::tensorflow::OpKernel {
 public:
  explicit FusedPush(OpKernelConstruction* construction) : OpKernel(construction) {
    std::string list;
    OP_REQUIRES_OK(construction, construction->GetAttr("list_key", &list));
    OP_REQUIRES_OK(construction, construction->GetAttr("index", &index_));
    list_ = &FusedList::of(list);
  }
  void Compute(OpKernelContext* context) override {
    Tensor* handed_over = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &handed_over));
    // Constant folding runs kernels without a step. Then the gradient must not be passed on.
    const bool folded = context->step_container() == nullptr;
    handed_over->scalar<std::int64_t>()() =
        folded ? 0 : list_->push(static_cast<std::uint32_t>(index_), context->input(0));
  }

 private:
  FusedList* list_ = nullptr;
  int index_ = 0;
};

class FusedAllReduce final : public Kernel {
 public:
  explicit FusedAllReduce(OpKernelConstruction* construction) : Kernel(construction) {
    std::string list;
    OP_REQUIRES_OK(construction, construction->GetAttr("list_key", &list));
    options_.names = names();
    OP_REQUIRES_OK(construction, construction->GetAttr("average", &options_.average));
    OP_REQUIRES_OK(construction, construction->GetAttr("hcom_parallel", &options_.hcom_parallel));
    OP_REQUIRES(construction,
                options_.names.size() == static_cast<std::size_t>(construction->num_outputs()),
                ::tensorflow::errors::InvalidArgument("hccl: a gradient needs a name"));
    list_ = &FusedList::of(list);
  }

 private:
  int alike(const OpKernelContext&) const override { return 0; }  // the list compares them
  Status run(OpKernelContext* context, HcclComm comm) override {
    return list_->reduce(context, comm, options_);
  }
  FusedList* list_ = nullptr;
  FusedList::Options options_;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HcclFusedPush").Device(::tensorflow::DEVICE_CPU), FusedPush);
REGISTER_KERNEL_BUILDER(Name("HcclFusedAllReduce").Device(::tensorflow::DEVICE_CPU),
                        FusedAllReduce);

}  // namespace hccl::tf

/// Ends the lists. Called before the world ends.
extern "C" __attribute__((visibility("default"))) void hccl_tf_forget_lists() {
  hccl::tf::FusedList::forget_all();
}

/// Returns null if the traces were written; otherwise the text of the failure, valid until the
/// thread's next call.
extern "C" __attribute__((visibility("default"))) const char* hccl_tf_write_traces(
    const char* prefix) {
  static thread_local std::string text;
  const hccl::tf::Status status = hccl::tf::FusedList::write_traces(prefix);
  if (status.ok()) return nullptr;
  text = std::string(status.message());
  return text.c_str();
}
