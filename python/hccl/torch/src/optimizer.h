#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <deque>
#include <unordered_map>
#include <vector>

#include "hccl/hccl_optim.h"

namespace hccl::pytorch {

namespace py = pybind11;

/// Makes the steps of an optimizer in Python. Each step makes a new table of spans, with the
/// current addresses of parameters, gradients and states, and passes the table to the library.
/// Between steps this class stores only the results of dictionary look-ups. It uses a stored result
/// only while the dictionary still has the same objects.
class Optimizer {
 public:
  /// `owner` is the optimizer in Python. This class does not keep it alive. It has the methods
  ///   _numbers(group, step) -> Numbers
  ///   _state_of(parameter, group)
  ///     -> (the dictionary, step or None, [states], master or None, is new)
  Optimizer(HcclOptimRule rule, const py::object& owner);

  /// Steps the parameters that have a gradient. `factor` multiplies the gradients. If `zero` is
  /// set, the gradients are 0 afterwards. `only` is the set of parameters to step, or None for all.
  void step(const py::list& groups, const py::dict& state, double factor, bool zero,
            const py::object& only);

 private:
  /// The results of the last step's look-ups for a parameter.
  struct Entry {
    py::object parameter;
    py::object state;                  // the dictionary; null: look it up
    std::array<py::object, 6> values;  // the values of `state` at the last step
    at::Tensor step, master;
    std::array<at::Tensor, 3> states;
    bool is_new = false;  // the parameter has not been stepped yet
  };
  struct Group {
    std::vector<Entry> entries;
    py::object key;  // names of the group's states
    py::dict of_python;
    std::unordered_map<double, const HcclOptimNumbers*> numbers;
    double last_step = -1;
    const HcclOptimNumbers* last_numbers = nullptr;
  };

  /// The state "step" of a parameter. step() changes it only after all spans have been made.
  struct Counter {
    void* at;
    bool is_double;
    double value;
    double get() const {
      return is_double ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
    }
    void set() const {
      if (is_double) {
        *static_cast<double*>(at) = value;
      } else {
        *static_cast<float*>(at) = static_cast<float>(value);
      }
    }
  };

  bool same_states(const py::dict& state) const;
  void remember_states(const py::dict& state);
  void collect(size_t group, const py::list& parameters, const py::object& only);
  void look_up(Entry& entry, const Group& group);
  void add_span(Entry& entry, const at::Tensor& parameter, const at::Tensor& gradient, size_t group,
                size_t number);
  const HcclOptimNumbers* numbers_of(Group& group, double step);
  [[noreturn]] void refuse(size_t group, size_t number, const std::string& reason) const;

  HcclOptimRule rule_;
  py::weakref owner_;
  std::vector<Group> groups_;
  std::vector<std::pair<py::object, py::object>> states_;  // keys and values of `state`

  // State of the current step.
  double factor_ = 1;
  bool zero_ = false, looked_up_ = false;
  std::deque<HcclOptimNumbers> numbers_;
  std::vector<HcclOptimSpan> spans_;
  std::vector<Counter> steps_;
  std::vector<at::Tensor> copies_, zeroed_;
};

void bind_optimizer(py::module_& module);

}  // namespace hccl::pytorch
