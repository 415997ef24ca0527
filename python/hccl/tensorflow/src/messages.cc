// The kernels of messages between two ranks. Ranks match messages by tag, independent of the order
// of collectives. The library's own thread completes the messages.
#include "hccl/hccl_framework.h"
#include "kernel.h"

namespace hccl::tf {
namespace {

class MessageOp : public Requested {
 public:
  MessageOp(OpKernelConstruction* construction, const char* peer) : Requested(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("sr_tag", &tag_));
    OP_REQUIRES_OK(construction, construction->GetAttr(peer, &peer_));
  }

 protected:
  std::uint32_t peer() const { return static_cast<std::uint32_t>(peer_); }
  std::int32_t tag() const { return tag_; }

 private:
  std::int32_t tag_ = 0;
  int peer_ = 0;
};

class Send final : public MessageOp {
 public:
  explicit Send(OpKernelConstruction* construction) : MessageOp(construction, "dest_rank") {}

 private:
  Status begin(Operation* operation) override {
    const Tensor& tensor = operation->context->input(0);
    return to_status(HcclIsend(memory_of(tensor), tensor.tensor_data().size(), peer(), tag(),
                               operation->comm, &finish, operation, nullptr));
  }
};

class Receive final : public MessageOp {
 public:
  explicit Receive(OpKernelConstruction* construction) : MessageOp(construction, "src_rank") {
    ::tensorflow::PartialTensorShape shape;
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape));
    OP_REQUIRES(construction, shape.AsTensorShape(&shape_),
                ::tensorflow::errors::InvalidArgument("hccl: shape: has unknown sizes"));
  }

 private:
  Status begin(Operation* operation) override {
    Tensor* tensor = nullptr;
    TF_RETURN_IF_ERROR(operation->context->allocate_output(0, shape_, &tensor));
    return to_status(HcclIrecv(memory_of(*tensor), tensor->tensor_data().size(), peer(), tag(),
                               operation->comm, &finish, operation, nullptr));
  }
  TensorShape shape_;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HcclSend").Device(::tensorflow::DEVICE_CPU), Send);
REGISTER_KERNEL_BUILDER(Name("HcclReceive").Device(::tensorflow::DEVICE_CPU), Receive);

}  // namespace hccl::tf
