#include "plan.h"

#include <c10/util/Exception.h>
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "backend.h"
#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "interpreter.h"

namespace py = pybind11;

namespace hccl::pytorch {
namespace {

using Future = c10::ivalue::Future;

constexpr const char* kOperation = "gradients";

class PlanHook final : public c10d::CppCommHookInterface<std::shared_ptr<GradientPlan>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
    return state_->reduce(bucket);
  }
};

}  // namespace

GradientPlan::GradientPlan(c10d::Store& store, int rank, int size,
                           std::chrono::milliseconds timeout, const Part& part, std::string group,
                           const Tensors& parameters, std::vector<std::string> names)
    : communicator_(store, rank, size, timeout, part),
      group_(std::move(group)),
      parameters_(parameters),
      names_(std::move(names)) {
  communicator_.set_timeout(timeout);
}

GradientPlan::~GradientPlan() { end(); }

void GradientPlan::end() {
  if (fork_.in_child()) return;
  if (under_way_) communicator_.abort("a model was deleted in the middle of a backward pass");
  forget();
}

void GradientPlan::forget() {
  if (fusion_ != nullptr) static_cast<void>(HcclFusionDestroy(std::exchange(fusion_, nullptr)));
  buckets_.clear();
}

void GradientPlan::set_gradients(const Tensors& gradients) {
  TORCH_CHECK(fusion_ == nullptr && gradients.size() == parameters_.size(),
              "hccl: a plan has one gradient for each parameter, once");
  for (size_t i = 0; i < gradients.size(); ++i) {
    buckets_.push_back({names_.at(i), {parameters_[i]}, gradients[i]});
  }
  make_fusion();
}

std::vector<std::pair<uint64_t, uint64_t>> GradientPlan::plan_newest_first() {
  HcclFusionOrder order{};
  check(HcclFusionPlanNewestFirst(fusion_, &order), "order");
  std::vector<std::pair<uint64_t, uint64_t>> messages;
  for (uint32_t i = 0; i < order.messageNum; ++i)
    messages.emplace_back(order.messages[i].begin, order.messages[i].end);
  return messages;
}

void GradientPlan::set_messages(const Tensors& messages, const std::vector<std::string>& names) {
  forget();
  for (size_t i = 0; i < messages.size(); ++i) buckets_.push_back({names.at(i), {}, messages[i]});
  make_fusion(true);
}

void GradientPlan::end_backward() {
  check(HcclFusionMark(fusion_, HCCL_FUSION_BP_END), kOperation);
  under_way_ = false;
}

void GradientPlan::wait_message(uint32_t message) {
  fork_.check();
  check(HcclFusionWaitSegment(fusion_, message), kOperation);
  if (message + 1 == buckets_.size()) check(HcclFusionWait(fusion_), kOperation);
}

void GradientPlan::ready(uint32_t gradient) {
  fork_.check();
  under_way_ = true;
  check(HcclFusionReady(fusion_, gradient), kOperation);
}

c10::intrusive_ptr<Future> GradientPlan::reduce(c10d::GradBucket& bucket) {
  fork_.check();
  const size_t index = bucket.getIndex();
  if (index == 0) futures_.clear();
  under_way_ = true;
  futures_.push_back(c10::make_intrusive<Future>(c10::TensorType::get()));
  const auto future = futures_.back();
  if (fusion_ == nullptr) {
    add(bucket);
  } else {
    TORCH_CHECK(
        index < buckets_.size() && bucket.getBuffer().data_ptr() == buckets_[index].data.data_ptr(),
        "hccl: the gradient of ", buckets_.at(index).name, " has moved");
    ready(static_cast<uint32_t>(index));
  }
  if (bucket.isLast()) finish();
  return future;
}

// In an iteration with new buckets, reduces each bucket as it arrives. At first DDP has only one
// bucket, with all gradients.
void GradientPlan::add(const c10d::GradBucket& bucket) {
  const at::Tensor& buffer = bucket.getBuffer();
  TORCH_CHECK(!buffer.is_sparse(), "hccl: a plan cannot reduce sparse gradients");
  buckets_.push_back({"", bucket.getParameters(), buffer});
  const at::Tensor& parameter = buckets_.back().parameters.at(0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_same(parameter)) buckets_.back().name = names_.at(i);
  }
  const Elements elements = to_reduce(buffer);
  check(HcclAllReduce(elements.data, elements.data, elements.count, elements.type, HCCL_REDUCE_AVG,
                      communicator_.handle(), nullptr),
        kOperation);
}

void GradientPlan::make_fusion(bool one_by_one) {
  std::vector<HcclFusionGradient> list;
  std::vector<uint32_t> own;  // the last gradient of each segment
  for (const Bucket& each : buckets_) {
    list.push_back(
        {each.name.c_str(), each.data.data_ptr(), static_cast<uint64_t>(each.data.numel())});
    if (one_by_one) own.push_back(static_cast<uint32_t>(own.size()));
  }
  HcclFusionOptions options{};
  options.dataType = to_reduce(buckets_.front().data).type;
  options.op = HCCL_REDUCE_AVG;
  options.hcomParallel = 1;
  options.group = group_.c_str();
  options.lastIndices = own.empty() ? nullptr : own.data();
  options.segmentNum = static_cast<uint32_t>(own.size());
  check(HcclFusionCreate(communicator_.handle(), list.data(), static_cast<uint32_t>(list.size()),
                         &options, &fusion_),
        kOperation);
}

// Called when all gradients are ready. Waits until they are reduced.
void GradientPlan::finish() {
  if (fusion_ != nullptr) {
    check(HcclFusionMark(fusion_, HCCL_FUSION_BP_END), kOperation);
    if (tail_) call_tail(segments());
    check(HcclFusionWait(fusion_), kOperation);
    finished_ = true;
  } else {
    if (tail_) call_tail({static_cast<uint32_t>(buckets_.size() - 1)});
  }
  under_way_ = false;
  for (size_t i = 0; i < futures_.size(); ++i) futures_[i]->markCompleted(buckets_[i].data);
  if (fusion_ != nullptr) return;
  const auto alone = [](const Bucket& each) { return each.parameters.size() == 1; };
  if (std::all_of(buckets_.begin(), buckets_.end(), alone)) {
    make_fusion();
  } else {
    buckets_.clear();  // DDP makes new buckets
  }
}

// Calls the hook for each segment as soon as it is reduced, while later segments are running.
void GradientPlan::call_tail(const std::vector<uint32_t>& last) const {
  size_t next = 0;
  for (uint32_t segment = 0; segment < last.size(); ++segment) {
    if (fusion_ != nullptr) check(HcclFusionWaitSegment(fusion_, segment), kOperation);
    Tensors parameters;
    for (; next <= last[segment]; ++next) {
      const Tensors& own = buckets_[next].parameters;
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    tail_(parameters);
  }
}

void GradientPlan::mark_forward() {
  if (fusion_ == nullptr || under_way_) return;
  if (std::exchange(finished_, false))
    check(HcclFusionMark(fusion_, HCCL_FUSION_ITERATION_END), kOperation);
  check(HcclFusionMark(fusion_, HCCL_FUSION_FP_START), kOperation);
}

std::vector<uint32_t> GradientPlan::segments() const {
  if (fusion_ == nullptr) return {};
  uint32_t number = 0;
  check(HcclFusionGetSegments(fusion_, nullptr, &number), "segments");
  std::vector<uint32_t> last(number);
  check(HcclFusionGetSegments(fusion_, last.data(), &number), "segments");
  return last;
}

std::vector<std::string> GradientPlan::gradients() const {
  std::vector<std::string> names;
  for (const Bucket& each : buckets_) names.push_back(each.name);
  return names;
}

HcclFusion GradientPlan::fusion() const {
  TORCH_CHECK(fusion_ != nullptr,
              "hccl: there is no trace yet: it begins with the third backward pass");
  return fusion_;
}

std::string GradientPlan::trace_text() const {
  const char* text = nullptr;
  check(HcclFusionTraceText(fusion(), &text), "trace");
  return text;
}

void GradientPlan::write_trace(const std::string& path) const {
  check(HcclFusionTraceWrite(fusion(), path.c_str()), "trace");
}

// ---- Python ----

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
        reducer.register_comm_hook(std::make_unique<PlanHook>(std::move(plan)));
      },
      py::arg("reducer"), py::arg("plan"));
}

}  // namespace hccl::pytorch
