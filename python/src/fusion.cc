// Gradient fusion: hccl/hccl_fusion.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "communicator.h"
#include "hccl/hccl_fusion.h"

namespace hccl::python {
namespace {

using Gradients = std::vector<std::pair<std::string, nb::object>>;

class Fusion {
 public:
  Fusion(nb::object communicator, const Gradients& gradients, bool hcom_parallel,
         const std::optional<std::vector<float>>& split_by_size,
         const std::optional<std::vector<std::uint32_t>>& split_by_index, const std::string& op,
         const std::string& group);
  ~Fusion();
  Fusion(const Fusion&) = delete;
  Fusion& operator=(const Fusion&) = delete;

  void rebind(nb::object communicator);
  void ready(std::uint32_t index);
  void mark(HcclFusionPoint point) { check(HcclFusionMark(handle(), point)); }
  void wait();
  std::vector<std::uint32_t> segments() const;
  std::string trace_text() const;
  void write_trace(const std::string& path) const;
  void close();

 private:
  HcclFusion handle() const;
  Communicator& communicator() const { return *nb::inst_ptr<Communicator>(owner_); }
  void keep_for_ever();

  nb::object owner_;              // the communicator
  std::vector<nb::object> kept_;  // owners of the gradients' memory
  HcclFusion fusion_ = nullptr;
  bool under_way_ = false;  // a gradient was marked ready, and wait() has not followed
};

Fusion::Fusion(nb::object communicator_object, const Gradients& gradients, bool hcom_parallel,
               const std::optional<std::vector<float>>& split_by_size,
               const std::optional<std::vector<std::uint32_t>>& split_by_index,
               const std::string& op, const std::string& group)
    : owner_(std::move(communicator_object)) {
  std::vector<std::string> names;
  std::vector<Array> arrays;
  for (const auto& [name, gradient] : gradients) {
    names.push_back(name);
    const std::string where =
        "gradients[" + std::to_string(arrays.size()) + "] (" + names.back() + ")";
    arrays.push_back(array_of(gradient, where, Access::kWrite));
    if (arrays.back().type_name != arrays.front().type_name) {
      throw nb::value_error((where + ": is of " + std::string(arrays.back().type_name) +
                             ", the first of " + std::string(arrays.front().type_name))
                                .c_str());
    }
  }
  std::vector<HcclFusionGradient> list;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    list.push_back({names[i].c_str(), arrays[i].data, arrays[i].count});
    kept_.push_back(arrays[i].owner);
  }
  if (list.empty()) throw nb::value_error("gradients: there are none");
  HcclFusionOptions options{};
  options.dataType = arrays.front().type;
  options.op = reduce_op(op, arrays.front());
  options.hcomParallel = hcom_parallel ? 1 : 0;
  options.group = group.c_str();
  if (split_by_size && split_by_index) {
    throw nb::value_error("split_by_size and split_by_index: give only one of them");
  }
  if (split_by_size) {
    options.percentages = split_by_size->data();
    options.segmentNum = static_cast<std::uint32_t>(split_by_size->size());
  }
  if (split_by_index) {
    options.lastIndices = split_by_index->data();
    options.segmentNum = static_cast<std::uint32_t>(split_by_index->size());
  }
  if ((split_by_size || split_by_index) && options.segmentNum == 0) {
    throw nb::value_error(split_by_size ? "split_by_size: is empty" : "split_by_index: is empty");
  }
  check(HcclFusionCreate(communicator().handle(), list.data(),
                         static_cast<std::uint32_t>(list.size()), &options, &fusion_));
}

// Never waits. If segments may be running, their memory is kept until the process ends.
Fusion::~Fusion() {
  if (fusion_ == nullptr) return;
  if (under_way_ || communicator().interrupted()) {
    keep_for_ever();
  } else {
    static_cast<void>(HcclFusionDestroy(fusion_));
  }
}

void Fusion::keep_for_ever() {
  for (nb::object& each : kept_) static_cast<void>(each.release());
  static_cast<void>(owner_.release());
}

HcclFusion Fusion::handle() const {
  if (fusion_ == nullptr) raise_error(HCCL_E_PARA, "fusion: is closed");
  static_cast<void>(communicator().handle());  // raises if the communicator cannot be used any more
  return fusion_;
}

void Fusion::rebind(nb::object communicator_object) {
  if (fusion_ == nullptr) raise_error(HCCL_E_PARA, "fusion: is closed");
  auto& other = *nb::inst_ptr<Communicator>(communicator_object);
  other.calls().run(
      [fusion = fusion_, comm = other.handle()] { return HcclFusionRebind(fusion, comm); }, kept_);
  owner_ = std::move(communicator_object);
  under_way_ = false;
}

void Fusion::ready(std::uint32_t index) {
  communicator().calls().finish();  // so that operations keep the order of the calls
  check(HcclFusionReady(handle(), index));
  under_way_ = true;
}

void Fusion::wait() {
  communicator().calls().run([fusion = handle()] { return HcclFusionWait(fusion); }, kept_);
  under_way_ = false;
}

std::vector<std::uint32_t> Fusion::segments() const {
  const HcclFusion fusion = handle();
  std::uint32_t number = 0;
  check(HcclFusionGetSegments(fusion, nullptr, &number));
  std::vector<std::uint32_t> last_indices(number);
  check(HcclFusionGetSegments(fusion, last_indices.data(), &number));
  return last_indices;
}

std::string Fusion::trace_text() const {
  const char* text = nullptr;
  check(HcclFusionTraceText(handle(), &text));
  return text;
}

void Fusion::write_trace(const std::string& path) const {
  check(HcclFusionTraceWrite(handle(), path.c_str()));
}

void Fusion::close() {
  if (fusion_ == nullptr) return;
  if (communicator().interrupted()) {
    keep_for_ever();
    fusion_ = nullptr;
    return;
  }
  communicator().calls().run([fusion = fusion_] { return HcclFusionDestroy(fusion); }, kept_);
  fusion_ = nullptr;
  kept_.clear();
}

}  // namespace

void bind_fusion(nb::module_& module) {
  nb::enum_<HcclFusionPoint>(module, "FusionPoint")
      .value("fp_start", HCCL_FUSION_FP_START)
      .value("bp_end", HCCL_FUSION_BP_END)
      .value("iteration_end", HCCL_FUSION_ITERATION_END);

  nb::class_<Fusion>(module, "Fusion")
      .def(nb::init<nb::object, const Gradients&, bool, const std::optional<std::vector<float>>&,
                    const std::optional<std::vector<std::uint32_t>>&, const std::string&,
                    const std::string&>(),
           nb::arg("communicator"), nb::arg("gradients"), nb::arg("hcom_parallel"),
           nb::arg("split_by_size").none(), nb::arg("split_by_index").none(), nb::arg("op"),
           nb::arg("group"))
      .def("rebind", &Fusion::rebind, nb::arg("communicator"))
      .def("ready", &Fusion::ready)
      .def("mark", &Fusion::mark)
      .def("wait", &Fusion::wait)
      .def_prop_ro("segments", &Fusion::segments)
      .def("trace_text", &Fusion::trace_text)
      .def("write_trace", &Fusion::write_trace)
      .def("close", &Fusion::close);
}

}  // namespace hccl::python
