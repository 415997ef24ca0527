// Messages with tags, and what is under way as Python holds it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <utility>

#include "communicator.h"

namespace hccl::python {
namespace {

using std::chrono::milliseconds;

class Message final : public Pending {
 public:
  explicit Message(HcclRequest request) : request_(request) {}
  ~Message() override { static_cast<void>(HcclRequestFree(request_)); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

 private:
  std::optional<Outcome> outcome_within(milliseconds patience) override {
    if (patience.count() > 0) {
      static_cast<void>(HcclRequestWait(request_, patience.count(), nullptr));
    }
    bool over = false;
    if (HcclRequestTest(request_, &over) == HCCL_SUCCESS && !over) return std::nullopt;
    std::uint32_t source = 0;
    Outcome outcome = call_now([&] { return HcclRequestWait(request_, 0, &source); });
    outcome.source = source;
    return outcome;
  }

  HcclRequest request_;
};

}  // namespace

std::shared_ptr<Pending> Communicator::send(nb::handle array, std::uint32_t dest,
                                            std::int32_t tag) {
  const Array in = array_of(array, "array", Access::kRead);
  HcclRequest request = nullptr;
  check(HcclIsend(in.data, in.count * in.item_bytes, dest, tag, handle(), nullptr, nullptr,
                  &request));
  auto message = std::make_shared<Message>(request);
  message->keep({in.owner});
  calls_.watch(message);
  return message;
}

std::shared_ptr<Pending> Communicator::recv(nb::handle array, std::uint32_t src, std::int32_t tag) {
  const Array out = array_of(array, "array", Access::kWrite);
  HcclRequest request = nullptr;
  check(HcclIrecv(out.data, out.count * out.item_bytes, src, tag, handle(), nullptr, nullptr,
                  &request));
  auto message = std::make_shared<Message>(request);
  message->keep({out.owner});
  calls_.watch(message);
  return message;
}

void bind_messages(nb::class_<Communicator>& type) {
  using nb::arg;
  const auto array = arg("array").none();
  type.def("send", &Communicator::send, array, arg("dest"), arg("tag"))
      .def("recv", &Communicator::recv, array, arg("src"), arg("tag"));
}

void bind_pending(nb::module_& module) {
  module.attr("ANY_RANK") = HCCL_ANY_RANK;
  nb::class_<Pending>(module, "Pending")
      .def("wait", &Pending::wait, nb::arg("limit").none())
      .def("done", &Pending::done)
      .def("source", &Pending::source);
}

}  // namespace hccl::python
