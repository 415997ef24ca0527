// The part of the Python module that hccl.torch.optim uses.
#include <pybind11/stl.h>

#include "optimizer.h"
#include "spans.h"

namespace hccl::pytorch {
namespace {

HcclOptimNumbers make_numbers(double lr, double weight_decay, double eps, double beta1,
                              double beta2, double momentum, double dampening, double delta,
                              double wd_ratio, double factor, uint32_t flags) {
  return {lr,        weight_decay, eps,      beta1, beta2,  momentum,
          dampening, delta,        wd_ratio, 1,     factor, flags};
}

}  // namespace

void bind_optimizer(py::module_& module) {
  py::enum_<HcclOptimRule>(module, "Rule")
      .value("SGD", HCCL_OPTIM_SGD)
      .value("ADAM", HCCL_OPTIM_ADAM)
      .value("ADAMP", HCCL_OPTIM_ADAMP)
      .value("ADADELTA", HCCL_OPTIM_ADADELTA)
      .value("LAMB", HCCL_OPTIM_LAMB)
      .value("RMSPROP", HCCL_OPTIM_RMSPROP)
      .value("RMSPROP_TF", HCCL_OPTIM_RMSPROP_TF)
      .value("BERT_ADAM", HCCL_OPTIM_BERT_ADAM);
  module.attr("NESTEROV") = static_cast<uint32_t>(HCCL_OPTIM_NESTEROV);
  module.attr("DECOUPLED") = static_cast<uint32_t>(HCCL_OPTIM_DECOUPLED);
  module.attr("LR_IN_MOMENTUM") = static_cast<uint32_t>(HCCL_OPTIM_LR_IN_MOMENTUM);
  module.attr("NO_TRUST") = static_cast<uint32_t>(HCCL_OPTIM_NO_TRUST);
  py::class_<HcclOptimNumbers>(module, "Numbers")
      .def(py::init(&make_numbers), py::kw_only(), py::arg("lr"), py::arg("weight_decay") = 0.0,
           py::arg("eps") = 0.0, py::arg("beta1") = 0.0, py::arg("beta2") = 0.0,
           py::arg("momentum") = 0.0, py::arg("dampening") = 0.0, py::arg("delta") = 0.0,
           py::arg("wd_ratio") = 0.0, py::arg("factor") = 1.0, py::arg("flags") = 0);
  py::class_<Optimizer>(module, "Optimizer")
      .def(py::init<HcclOptimRule, const py::object&>(), py::arg("rule"), py::arg("owner"))
      .def("step", &Optimizer::step, py::arg("groups"), py::arg("state"), py::arg("factor"),
           py::arg("zero"), py::arg("only"));
  module.def(
      "norms",
      [](const std::vector<at::Tensor>& tensors) {
        const HcclOptimNorm norm = norms(tensors);
        return std::pair(norm.squares, norm.largest);
      },
      py::arg("tensors"), py::call_guard<py::gil_scoped_release>());
  module.def("scale", &scale, py::arg("tensors"), py::arg("factor"),
             py::call_guard<py::gil_scoped_release>());
  module.def("instruction_set", &HcclOptimInstructionSet);
}

}  // namespace hccl::pytorch
