#include "optimizer.h"

#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "spans.h"

namespace hccl::pytorch {
namespace {

/// Returns whether a dictionary still has the remembered values.
template <class Values>
bool same_values(PyObject* dictionary, const Values& values) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  size_t number = 0;
  while (PyDict_Next(dictionary, &at, &key, &value) != 0) {
    if (number == values.size() || values[number].ptr() != value) return false;
    ++number;
  }
  return number == values.size() || !values[number];
}

HcclOptimNumbers make_numbers(double lr, double weight_decay, double eps, double beta1,
                              double beta2, double momentum, double dampening, double delta,
                              double wd_ratio, double factor, uint32_t flags) {
  return {lr,        weight_decay, eps,      beta1, beta2,  momentum,
          dampening, delta,        wd_ratio, 1,     factor, flags};
}

}  // namespace

Optimizer::Optimizer(HcclOptimRule rule, const py::object& owner) : rule_(rule), owner_(owner) {}

void Optimizer::step(const py::list& groups, const py::dict& state, double factor, bool zero,
                     const py::object& only) {
  factor_ = factor;
  zero_ = zero;
  looked_up_ = false;
  numbers_.clear();
  spans_.clear();
  steps_.clear();
  copies_.clear();
  zeroed_.clear();
  if (!same_states(state)) groups_.clear();
  groups_.resize(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    Group& group = groups_[i];
    group.of_python = groups[i].cast<py::dict>();
    group.numbers.clear();
    group.last_numbers = nullptr;
    py::object key = owner_().attr("_state_key")(group.of_python);
    if (!group.key || !group.key.equal(key)) group.entries.clear();
    group.key = std::move(key);
    collect(i, group.of_python["params"].cast<py::list>(), only);
  }
  if (looked_up_) remember_states(state);
  for (const Counter& counter : steps_) counter.set();
  {
    const py::gil_scoped_release others;
    const HcclOptimThreads threads = torch_threads();
    HcclOptimStep(rule_, spans_.data(), spans_.size(), &threads);
  }
  for (at::Tensor& gradient : zeroed_) gradient.zero_();
}

bool Optimizer::same_states(const py::dict& state) const {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  size_t number = 0;
  while (PyDict_Next(state.ptr(), &at, &key, &value) != 0) {
    if (number == states_.size() || states_[number].first.ptr() != key ||
        states_[number].second.ptr() != value) {
      return false;
    }
    ++number;
  }
  return number == states_.size();
}

void Optimizer::remember_states(const py::dict& state) {
  states_.clear();
  for (const auto& [key, value] : state) {
    states_.emplace_back(py::reinterpret_borrow<py::object>(key),
                         py::reinterpret_borrow<py::object>(value));
  }
}

void Optimizer::collect(size_t group_number, const py::list& parameters, const py::object& only) {
  Group& group = groups_[group_number];
  group.entries.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    PyObject* const object = PyList_GET_ITEM(parameters.ptr(), i);
    const at::Tensor& parameter = THPVariable_Unpack(object);
    const at::Tensor& gradient = gradient_of(parameter);
    if (!gradient.defined()) continue;
    if (!only.is_none() && PySet_Contains(only.ptr(), object) != 1) continue;
    Entry& entry = group.entries[i];
    if (entry.parameter.ptr() != object) {
      entry = Entry();
      entry.parameter = py::reinterpret_borrow<py::object>(object);
    }
    if (!can_step(parameter, gradient)) {
      refuse(group_number, i, fault_of_gradient(parameter, gradient));
    }
    if (!entry.state || !same_values(entry.state.ptr(), entry.values)) {
      try {
        look_up(entry, group);
      } catch (const py::error_already_set& error) {
        if (!error.matches(PyExc_RuntimeError)) throw;
        refuse(group_number, i, py::str(error.value()));
      }
    }
    add_span(entry, parameter, gradient, group_number, i);
  }
}

void Optimizer::look_up(Entry& entry, const Group& group) {
  looked_up_ = true;
  const auto found = owner_().attr("_state_of")(entry.parameter, group.of_python).cast<py::tuple>();
  entry.state = found[0];
  entry.step = found[1].is_none() ? at::Tensor() : found[1].cast<at::Tensor>();
  const auto states = found[2].cast<py::list>();
  for (size_t k = 0; k < entry.states.size(); ++k) {
    const bool there = k < states.size() && !states[k].is_none();
    entry.states[k] = there ? states[k].cast<at::Tensor>() : at::Tensor();
  }
  entry.master = found[3].is_none() ? at::Tensor() : found[3].cast<at::Tensor>();
  entry.is_new = found[4].cast<bool>();
  entry.values = {};
  size_t number = 0;
  for (const auto& item : entry.state.cast<py::dict>()) {
    if (number == entry.values.size()) break;  // longer dictionaries are looked up each time
    entry.values[number++] = py::reinterpret_borrow<py::object>(item.second);
  }
}

void Optimizer::add_span(Entry& entry, const at::Tensor& parameter, const at::Tensor& gradient,
                         size_t group, size_t number) {
  double step = entry.is_new ? 1 : 2;  // for rules that do not count steps
  entry.is_new = false;
  if (entry.step.defined()) {
    Counter counter{memory_of(entry.step), entry.step.scalar_type() == at::kDouble, 0};
    step = counter.value = counter.get() + 1;
    steps_.push_back(counter);
  }
  HcclOptimSpan span{};
  span.count = static_cast<uint64_t>(parameter.numel());
  if (span.count == 0) return;
  const bool has_master = entry.master.defined();
  span.parameter = memory_of(has_master ? entry.master : parameter);
  span.copy = has_master ? memory_of(parameter) : nullptr;
  span.type = type_of(parameter, has_master);
  if (same_layout(gradient, parameter)) {
    span.gradient = memory_of(gradient);
  } else {
    if (zero_) zeroed_.push_back(gradient);
    span.gradient = memory_of(copies_.emplace_back(at::empty_like(parameter).copy_(gradient)));
  }
  for (size_t k = 0; k < entry.states.size(); ++k) {
    const at::Tensor& state = entry.states[k];
    if (!state.defined()) continue;
    if (!same_layout(state, parameter)) {
      refuse(group, number, "its state has other sizes or strides");
    }
    span.states[k] = memory_of(state);
  }
  if (rule_ == HCCL_OPTIM_ADAMP && parameter.dim() > 1) {
    if (!rows_are_contiguous(parameter)) refuse(group, number, "its rows are not contiguous");
    span.rows = static_cast<uint64_t>(parameter.size(0));
  }
  span.numbers = numbers_of(groups_[group], step);
  spans_.push_back(span);
  if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
}

const HcclOptimNumbers* Optimizer::numbers_of(Group& group, double step) {
  if (group.last_numbers != nullptr && group.last_step == step) return group.last_numbers;
  const HcclOptimNumbers*& known = group.numbers[step];
  if (known == nullptr) {
    auto numbers = owner_().attr("_numbers")(group.of_python, step).cast<HcclOptimNumbers>();
    numbers.step = step;
    numbers.factor *= factor_;
    if (zero_) numbers.flags |= HCCL_OPTIM_ZERO_GRADIENT;
    known = &numbers_.emplace_back(numbers);
  }
  group.last_step = step;
  return group.last_numbers = known;
}

void Optimizer::refuse(size_t group, size_t number, const std::string& reason) const {
  const py::dict& of_python = groups_[group].of_python;
  std::ostringstream text;
  text << "parameter " << number << " of group " << group;
  if (of_python.contains("param_names")) {
    text << " (" << std::string(py::str(of_python["param_names"].cast<py::list>()[number])) << ")";
  }
  throw std::runtime_error(text.str() + ": " + reason);
}

// ---- Python ----

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
}

}  // namespace hccl::pytorch
