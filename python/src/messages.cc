// Messages with tags, and running operations for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include "communicator.h"

namespace hccl::python {
Communicator::Begun Communicator::send(nb::handle array, std::uint32_t dest, std::int32_t tag) {
  const Array in = array_of(array, "array", Access::kRead);
  HcclRequest request = nullptr;
  check(HcclIsend(in.data, in.count * in.item_bytes, dest, tag, handle(), nullptr, nullptr,
                  &request));
  return calls_.watch(request, {in.owner});
}

Communicator::Begun Communicator::recv(nb::handle array, std::uint32_t src, std::int32_t tag) {
  const Array out = array_of(array, "array", Access::kWrite);
  HcclRequest request = nullptr;
  check(HcclIrecv(out.data, out.count * out.item_bytes, src, tag, handle(), nullptr, nullptr,
                  &request));
  return calls_.watch(request, {out.owner});
}

void bind_messages(nb::class_<Communicator>& type) {
  using nb::arg;
  const auto array = arg("array").none();
  type.def("send", &Communicator::send, array, arg("dest"), arg("tag"))
      .def("recv", &Communicator::recv, array, arg("src"), arg("tag"));
}

void bind_pending(nb::module_& module) {
  module.attr("ANY_RANK") = HCCL_ANY_RANK;
  nb::class_<PendingRequest>(module, "PendingRequest")
      .def("wait", &PendingRequest::wait, nb::arg("limit").none())
      .def("done", &PendingRequest::done)
      .def("source", &PendingRequest::source);
}

}  // namespace hccl::python
