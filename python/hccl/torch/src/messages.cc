#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "backend.h"
#include "exit.h"
#include "hccl/hccl_framework.h"

namespace hccl::pytorch {
namespace {

/// The Work of a send or receive. The library's callback keeps it while the message is running.
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

  void send_to(int dest, int tag) {
    start([&](HcclComm comm, void* self) {
      return HcclIsend(memory_.const_data_ptr(), memory_.nbytes(), static_cast<uint32_t>(dest), tag,
                       comm, &MessageWork::done, self, &request_);
    });
  }

  void receive_from(uint32_t source, int tag) {
    start([&](HcclComm comm, void* self) {
      return HcclIrecv(memory_.data_ptr(), memory_.nbytes(), source, tag, comm, &MessageWork::done,
                       self, &request_);
    });
  }

 private:
  template <typename Post>
  void start(const Post& post) {
    const HcclComm comm = communicator_->begin_message();
    auto* self = c10::intrusive_ptr<MessageWork>::unsafe_reclaim_from_nonowning(this).release();
    const HcclResult result = post(comm, self);
    if (result == HCCL_SUCCESS) return;
    c10::intrusive_ptr<MessageWork>::reclaim(self);
    communicator_->end_message();
    check(result, retrieveOpType() == c10d::OpType::SEND ? "send" : "recv");
  }

  static void done(void* arg, HcclResult result) {
    auto* const self = static_cast<MessageWork*>(arg);
    if (python_ends()) return self->communicator_->end_message();
    const bool future = self->has_future_at_end(self->end(result));
    // Waits through the library, because a callback may wait for messages, and this thread moves
    // them.
    const auto nothing = [](void*) { return HCCL_SUCCESS; };
    const auto told = [](void* arg, HcclResult) { complete_last(arg, true); };
    if (future && HcclSubmit(nothing, nullptr, false, told, self, nullptr) == HCCL_SUCCESS) return;
    complete_last(self, future);
  }

  static void complete_last(void* arg, bool future) {
    auto self = c10::intrusive_ptr<MessageWork>::reclaim(static_cast<MessageWork*>(arg));
    const auto communicator = self->communicator_;
    self->complete_future(future);
    self.reset();  // before the message ends, because then Python may end
    communicator->end_message();
  }

  // The failure of the message, or null.
  std::exception_ptr end(HcclResult result) {
    const bool sends = retrieveOpType() == c10d::OpType::SEND;
    try {
      check(result, sends ? "send" : "recv");
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      if (!sends) unpack(memory_, tensor_);
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

const at::Tensor& single(const Tensors& tensors, const Refusal& refuse) {
  if (tensors.size() != 1) refuse("takes a single tensor");
  c10d::assertDense(refuse, tensors);
  c10d::assertCPU(refuse, tensors);
  return tensors[0];
}

void check_tag(int tag, const Refusal& refuse) {
  if (tag < 0) refuse("Tag must be nonnegative");
}

}  // namespace

WorkPtr ProcessGroupHccl::send(Tensors& tensors, int dest, int tag) {
  const Refusal refuse("send");
  const at::Tensor& tensor = single(tensors, refuse);
  check_tag(tag, refuse);
  if (dest < 0 || dest >= size_) refuse("invalid destination rank: " + std::to_string(dest));
  fork_.check();
  auto work = c10::make_intrusive<MessageWork>(rank_, c10d::OpType::SEND, "hccl:send", tensor,
                                               current(), options_->timeout);
  work->send_to(dest, tag);
  return coalescing_.add(work, true);  // c10d does not distinguish send from isend
}

WorkPtr ProcessGroupHccl::recv(Tensors& tensors, int source, int tag) {
  const Refusal refuse("recv");
  const at::Tensor& tensor = single(tensors, refuse);
  check_tag(tag, refuse);
  if (source < 0 || source >= size_) refuse("invalid source rank: " + std::to_string(source));
  check_outputs(tensors, refuse);
  fork_.check();
  auto work = c10::make_intrusive<MessageWork>(rank_, c10d::OpType::RECV, "hccl:recv", tensor,
                                               current(), options_->timeout);
  work->receive_from(static_cast<uint32_t>(source), tag);
  return coalescing_.add(work, true);
}

WorkPtr ProcessGroupHccl::recvAnysource(Tensors& tensors, int tag) {
  const Refusal refuse("recvAnysource");
  const at::Tensor& tensor = single(tensors, refuse);
  check_tag(tag, refuse);
  check_outputs(tensors, refuse);
  fork_.check();
  auto work =
      c10::make_intrusive<MessageWork>(rank_, c10d::OpType::RECVANYSOURCE, "hccl:recvAnySource",
                                       tensor, current(), options_->timeout);
  work->receive_from(HCCL_ANY_RANK, tag);
  return coalescing_.add(work, true);
}

}  // namespace hccl::pytorch
