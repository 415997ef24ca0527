// The Python module. It uses pybind11, because c10d's classes do.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "backend.h"
#include "exit.h"
#include "interpreter.h"
#include "optimizer.h"
#include "plan.h"

namespace py = pybind11;

namespace hccl::pytorch {
namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, std::chrono::milliseconds timeout,
                                         const std::string& group_name,
                                         const std::vector<uint64_t>& global_ranks,
                                         const c10::intrusive_ptr<ProcessGroupHccl>& whole,
                                         bool later) {
  TORCH_CHECK(!program_ends(), "hccl: the program ends, so no process group can be made");
  return c10::make_intrusive<ProcessGroupHccl>(store, rank, size, timeout, group_name, global_ranks,
                                               whole, later);
}

}  // namespace
}  // namespace hccl::pytorch

PYBIND11_MODULE(_backend, module) {
  py::module_::import("torch._C._distributed_c10d");  // the classes on which this module builds
  py::class_<hccl::pytorch::ProcessGroupHccl, c10d::Backend,
             c10::intrusive_ptr<hccl::pytorch::ProcessGroupHccl>>(module, "ProcessGroupHccl")
      // Named as in Gloo's and NCCL's backends.
      .def_property_readonly("options", &hccl::pytorch::ProcessGroupHccl::getBackendOptions)
      .def("shrink_to_living", &hccl::pytorch::ProcessGroupHccl::shrink_to_living,
           py::arg("excluded"), py::arg("flags"), py::arg("options").none(true),
           py::call_guard<hccl::pytorch::WithoutInterpreterLock>())
      .def("sum_in_place", &hccl::pytorch::ProcessGroupHccl::sum_in_place, py::arg("tensor"),
           py::call_guard<hccl::pytorch::WithoutInterpreterLock>())
      .def("_set_default_timeout", &hccl::pytorch::ProcessGroupHccl::setTimeout)
      .def("pack_tensors", &hccl::pytorch::ProcessGroupHccl::pack_tensors, py::arg("bytes"));
  module.def("create", &hccl::pytorch::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("group_name"), py::arg("global_ranks"),
             py::arg("whole").none(true), py::arg("later") = false,
             py::call_guard<hccl::pytorch::WithoutInterpreterLock>());
  module.def("synchronize", &hccl::pytorch::synchronize,
             py::call_guard<hccl::pytorch::WithoutInterpreterLock>());
  module.def("end_groups", &hccl::pytorch::end_groups, py::arg("failed"),
             py::call_guard<hccl::pytorch::WithoutInterpreterLock>());
  module.def(
      "empty",
      [](const std::vector<int64_t>& sizes, at::ScalarType type) {
        return hccl::pytorch::heap_empty(sizes, at::TensorOptions(type));
      },
      py::arg("sizes"), py::arg("dtype"));
  hccl::pytorch::bind_optimizer(module);
  hccl::pytorch::bind_plan(module);
}
