// GradientPlan in Python.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "backend.h"
#include "interpreter.h"
#include "plan.h"

namespace py = pybind11;

namespace hccl::pytorch {

void bind_plan(py::module_& module) {
  using Release = py::call_guard<WithoutInterpreterLock>;
  py::class_<GradientPlan, std::shared_ptr<GradientPlan>>(module, "GradientPlan")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout,
                       const c10::intrusive_ptr<ProcessGroupHccl>& whole, const std::string& name,
                       const std::string& group, const Tensors& parameters,
                       const std::vector<std::string>& names) {
             Part part{whole ? whole->communicator() : nullptr, {}, name, true};
             for (int each = 0; each < size; ++each) part.ranks.push_back(each);
             return std::make_shared<GradientPlan>(*store, rank, size, timeout, part, group,
                                                   parameters, names);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("whole").none(true), py::arg("name"), py::arg("group"), py::arg("parameters"),
           py::arg("names"), Release())
      .def("set_gradients", &GradientPlan::set_gradients, py::arg("gradients"))
      .def("ready", &GradientPlan::ready, py::arg("gradient"))
      .def("finish", &GradientPlan::finish, Release())
      .def("plan_newest_first", &GradientPlan::plan_newest_first, Release())
      .def("set_messages", &GradientPlan::set_messages, py::arg("messages"), py::arg("names"),
           Release())
      .def("end_backward", &GradientPlan::end_backward)
      .def("wait_message", &GradientPlan::wait_message, py::arg("message"), Release())
      .def("end", &GradientPlan::end, Release())
      .def("forget", &GradientPlan::forget, Release())
      .def("mark_forward", &GradientPlan::mark_forward)
      .def("set_tail", &GradientPlan::set_tail, py::arg("tail").none(true))
      .def_property_readonly("segments", &GradientPlan::segments)
      .def_property_readonly("gradients", &GradientPlan::gradients)
      .def("trace_text", &GradientPlan::trace_text)
      .def("write_trace", &GradientPlan::write_trace, py::arg("path"));
  module.def(
      "plan_reducer",
      [](c10d::Reducer& reducer, std::shared_ptr<GradientPlan> plan) {
        plan_reducer(reducer, std::move(plan));
      },
      py::arg("reducer"), py::arg("plan"));
}

}  // namespace hccl::pytorch
