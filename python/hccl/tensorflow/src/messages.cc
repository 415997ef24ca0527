// Messages between two ranks: matched by tag, apart from the order of collectives, and done on the
// library's own thread.
#include <memory>
#include <utility>

#include "hccl/hccl_framework.h"
#include "kernel.h"
#include "waits.h"

namespace hccl::tf {
namespace {

struct Pending {
  OpKernelContext* context;
  AsyncOpKernel::DoneCallback done;
  Waiting waiting;
};

void finish(void* arg, HcclResult result) {
  const std::unique_ptr<Pending> pending(static_cast<Pending*>(arg));
  if (result != HCCL_SUCCESS) pending->context->CtxFailure(to_status(result));
  pending->done();
}

class Message : public AsyncOpKernel {
 public:
  Message(OpKernelConstruction* construction, const char* peer) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("group", &group_));
    OP_REQUIRES_OK(construction, construction->GetAttr("sr_tag", &tag_));
    OP_REQUIRES_OK(construction, construction->GetAttr(peer, &peer_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    HcclComm comm = nullptr;
    OP_REQUIRES_OK_ASYNC(context, comm_of(group_, &comm), done);
    auto pending = std::unique_ptr<Pending>(new Pending{context, done, Waiting(comm)});
    const HcclResult result = post(context, comm, pending.get());
    if (result == HCCL_SUCCESS) {
      static_cast<void>(pending.release());  // finish() has it
    } else {
      OP_REQUIRES_OK_ASYNC(context, to_status(result), done);
    }
  }

 protected:
  virtual HcclResult post(OpKernelContext* context, HcclComm comm, Pending* pending) = 0;
  std::uint32_t peer() const { return static_cast<std::uint32_t>(peer_); }
  std::int32_t tag() const { return tag_; }

 private:
  std::string group_;
  std::int32_t tag_ = 0;
  int peer_ = 0;
};

class Send final : public Message {
 public:
  explicit Send(OpKernelConstruction* construction) : Message(construction, "dest_rank") {}

 private:
  HcclResult post(OpKernelContext* context, HcclComm comm, Pending* pending) override {
    const Tensor& tensor = context->input(0);
    return HcclIsend(memory_of(tensor), tensor.tensor_data().size(), peer(), tag(), comm, finish,
                     pending, nullptr);
  }
};

class Receive final : public Message {
 public:
  explicit Receive(OpKernelConstruction* construction) : Message(construction, "src_rank") {
    ::tensorflow::PartialTensorShape shape;
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape));
    OP_REQUIRES(construction, shape.AsTensorShape(&shape_),
                ::tensorflow::errors::InvalidArgument("hccl: shape: has unknown sizes"));
  }

 private:
  HcclResult post(OpKernelContext* context, HcclComm comm, Pending* pending) override {
    Tensor* tensor = nullptr;
    if (!context->allocate_output(0, shape_, &tensor).ok()) return HCCL_E_OOM;
    return HcclIrecv(memory_of(*tensor), tensor->tensor_data().size(), peer(), tag(), comm, finish,
                     pending, nullptr);
  }
  TensorShape shape_;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HcclSend").Device(::tensorflow::DEVICE_CPU), Send);
REGISTER_KERNEL_BUILDER(Name("HcclReceive").Device(::tensorflow::DEVICE_CPU), Receive);

}  // namespace hccl::tf
