#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "backend.h"
#include "exit.h"
#include "hccl/hccl_framework.h"

namespace hccl::pytorch {
namespace {

/// The Work of a send or receive. The library's callback owns a reference until the message ends.
class MessageWork final : public Work {
 public:
  MessageWork(int rank, c10d::OpType type, const char* title, const at::Tensor& tensor,
              std::shared_ptr<Communicator> communicator, std::chrono::milliseconds timeout)
      : Work(rank, type, title, {tensor}, {tensor}),
        tensor_(tensor),
        memory_(type == c10d::OpType::SEND ? packed(tensor) : room_for(tensor)),
        communicator_(std::move(communicator)),
        timeout_(timeout) {}

  bool wait(std::chrono::milliseconds timeout) override {
    return Work::wait(timeout <= kNoTimeout ? timeout_ : timeout);
  }

  int sourceRank() const override {
    uint32_t source = 0;
    check(HcclRequestWait(request_, 0, &source), "recv");
    return static_cast<int>(source);
  }

  /// `peer` is the receiver, the sender, or HCCL_ANY_RANK.
  void start(uint32_t peer, int tag) {
    const HcclComm comm = communicator_->begin_message();
    auto* self = c10::intrusive_ptr<MessageWork>::unsafe_reclaim_from_nonowning(this).release();
    const uint64_t bytes = memory_.nbytes();
    const HcclResult result =
        sends()
            ? HcclIsend(memory_.const_data_ptr(), bytes, peer, tag, comm, &done, self, &request_)
            : HcclIrecv(memory_.data_ptr(), bytes, peer, tag, comm, &done, self, &request_);
    if (result == HCCL_SUCCESS) return;
    c10::intrusive_ptr<MessageWork>::reclaim(self);
    communicator_->end_message();
    check(result, sends() ? "send" : "recv");
  }

 private:
  bool sends() const { return retrieveOpType() == c10d::OpType::SEND; }

  static void done(void* arg, HcclResult result) {
    auto* const self = static_cast<MessageWork*>(arg);
    if (python_ends()) return self->communicator_->end_message();
    const bool future = self->has_future_at_end(self->end(result));
    // Completes the future on another thread, because this thread moves the messages, and the
    // future's callback may wait for messages.
    const auto nothing = [](void*) { return HCCL_SUCCESS; };
    const auto told = [](void* arg, HcclResult) { complete_last(arg, true); };
    if (future && HcclSubmit(nothing, nullptr, false, told, self, nullptr) == HCCL_SUCCESS) return;
    complete_last(self, future);
  }

  static void complete_last(void* arg, bool future) {
    auto self = c10::intrusive_ptr<MessageWork>::reclaim(static_cast<MessageWork*>(arg));
    const auto communicator = self->communicator_;
    self->complete_future(future);
    self.reset();  // before end_message(), because after it Python may end
    communicator->end_message();
  }

  // Returns the failure of the message, or null if it succeeded.
  std::exception_ptr end(HcclResult result) {
    try {
      check(result, sends() ? "send" : "recv");
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      if (!sends()) unpack(memory_, tensor_);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const at::Tensor tensor_;
  const at::Tensor memory_;
  const std::shared_ptr<Communicator> communicator_;
  const std::chrono::milliseconds timeout_;
};

const at::Tensor& single(const Tensors& tensors, int tag, const Refusal& refuse) {
  if (tensors.size() != 1) refuse("takes a single tensor");
  c10d::assertDense(refuse, tensors);
  c10d::assertCPU(refuse, tensors);
  if (tag < 0) refuse("Tag must be nonnegative");
  return tensors[0];
}

}  // namespace

WorkPtr ProcessGroupHccl::begin_message(c10d::OpType type, const char* title,
                                        const at::Tensor& tensor, uint32_t peer, int tag) {
  fork_.check();
  const auto work =
      c10::make_intrusive<MessageWork>(rank_, type, title, tensor, current(), options_->timeout);
  work->start(peer, tag);
  return coalescing_.add(work, true);  // c10d does not distinguish send from isend
}

WorkPtr ProcessGroupHccl::send(Tensors& tensors, int dest, int tag) {
  const Refusal refuse("send");
  const at::Tensor& tensor = single(tensors, tag, refuse);
  if (dest < 0 || dest >= size_) refuse("invalid destination rank: " + std::to_string(dest));
  return begin_message(c10d::OpType::SEND, "hccl:send", tensor, static_cast<uint32_t>(dest), tag);
}

WorkPtr ProcessGroupHccl::recv(Tensors& tensors, int source, int tag) {
  const Refusal refuse("recv");
  const at::Tensor& tensor = single(tensors, tag, refuse);
  if (source < 0 || source >= size_) refuse("invalid source rank: " + std::to_string(source));
  check_outputs(tensors, refuse);
  return begin_message(c10d::OpType::RECV, "hccl:recv", tensor, static_cast<uint32_t>(source), tag);
}

WorkPtr ProcessGroupHccl::recvAnysource(Tensors& tensors, int tag) {
  const Refusal refuse("recvAnysource");
  const at::Tensor& tensor = single(tensors, tag, refuse);
  check_outputs(tensors, refuse);
  return begin_message(c10d::OpType::RECVANYSOURCE, "hccl:recvAnySource", tensor, HCCL_ANY_RANK,
                       tag);
}

}  // namespace hccl::pytorch
