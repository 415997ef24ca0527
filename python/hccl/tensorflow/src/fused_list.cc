#include "fused_list.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>

#include "compare.h"
#include "hccl/hccl.h"
#include "waits.h"

namespace hccl::tf {
namespace {

namespace errors = ::tensorflow::errors;

constexpr std::size_t kAlignment = 64;

struct Lists {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<FusedList>> all;
};

Lists& lists() {
  static Lists* const made = new Lists;
  return *made;
}

// Index 0 is the last input, because backward makes the gradient of the last variable first.
int input_of(std::size_t gradients, std::size_t index) {
  return static_cast<int>(gradients - 1 - index);
}

}  // namespace

FusedList& FusedList::of(const std::string& key) {
  const std::lock_guard lock(lists().mutex);
  auto& found = lists().all[key];
  if (found == nullptr) found = std::make_unique<FusedList>();
  return *found;
}

void FusedList::forget_all() {
  const std::lock_guard lock(lists().mutex);
  for (auto& [key, list] : lists().all) list->forget();
}

Status FusedList::write_traces(const std::string& prefix) {
  const std::lock_guard lock(lists().mutex);
  for (auto& [key, list] : lists().all) {
    const std::lock_guard own(list->mutex_);
    if (list->fusion_ == nullptr || list->reducing_) continue;
    const std::string path = prefix + std::to_string(list->number_);
    for (const char* const form : {".pb", ".json"}) {  // for hccl-plan and for Perfetto
      TF_RETURN_IF_ERROR(to_status(HcclFusionTraceWrite(list->fusion_, (path + form).c_str())));
    }
  }
  return absl::OkStatus();
}

std::int64_t FusedList::push(std::uint32_t index, const Tensor& tensor) {
  const auto bytes = tensor.tensor_data();
  std::unique_lock lock(mutex_);
  if (reducing_ || index >= gradients_.size()) return 0;
  Gradient& gradient = gradients_[index];
  if (gradient.state != State::kEmpty || gradient.bytes != bytes.size()) return 0;
  gradient.state = State::kCopying;
  gradient.step = step_;
  lock.unlock();
  std::memcpy(gradient.data, bytes.data(), bytes.size());
  lock.lock();
  gradient.state = State::kCopied;
  const bool handed = hand_over().ok();  // reduce() reports the failure
  copied_.notify_all();
  return handed ? gradient.step : 0;
}

// Passes copied gradients to the fusion object, in the order of the indices. So if a step ends
// early, next_ shows which were passed. This costs no time, because segments begin in this order.
Status FusedList::hand_over() {
  while (next_ < gradients_.size() && gradients_[next_].state == State::kCopied) {
    TF_RETURN_IF_ERROR(to_status(HcclFusionReady(fusion_, next_)));
    ++next_;
  }
  return absl::OkStatus();
}

Status FusedList::reduce(OpKernelContext* context, HcclComm world, const Options& options) {
  {
    const std::lock_guard lock(mutex_);
    if (reducing_) return errors::FailedPrecondition("hccl: two steps reduce the same gradients");
    reducing_ = true;
  }
  Status status;
  if (fusion_ == nullptr) status = open(context, world, options);
  if (status.ok()) status = collect(context);
  if (status.ok()) status = wait(context);
  const std::lock_guard lock(mutex_);
  reducing_ = false;
  return status;
}

Status FusedList::open(OpKernelContext* context, HcclComm world, const Options& options) {
  const auto count = static_cast<std::size_t>(context->num_outputs());
  const std::vector<TensorShape> shapes = shapes_of(*context, context->num_outputs());
  TF_RETURN_IF_ERROR(
      compare(world, Form::kFused, shapes, context->op_kernel().name(), options.names));
  TF_RETURN_IF_ERROR(open_communicator(world));
  const Waiting waiting(comm_);
  std::vector<Gradient> gradients(count);
  std::vector<std::size_t> places;
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    gradients[i].bytes = context->input(input_of(count, i)).tensor_data().size();
    places.push_back(end);
    end += gradients[i].bytes;  // no gaps, so that contiguous segments are reduced without a copy
  }
  TF_RETURN_IF_ERROR(memory_.resize(std::max(end, kAlignment)));
  std::vector<HcclFusionGradient> list;
  for (std::size_t i = 0; i < count; ++i) {
    const auto input = static_cast<std::size_t>(input_of(count, i));
    gradients[i].data = memory_.data() + places[i];
    list.push_back({options.names[input].c_str(), gradients[i].data,
                    static_cast<std::uint64_t>(shapes[input].num_elements())});
  }
  HcclFusionOptions fusion{};
  fusion.dataType = to_type(context->input_dtype(0));
  fusion.op = options.average ? HCCL_REDUCE_AVG : HCCL_REDUCE_SUM;
  fusion.hcomParallel = options.hcom_parallel ? 1 : 0;
  TF_RETURN_IF_ERROR(to_status(
      HcclFusionCreate(comm_, list.data(), static_cast<std::uint32_t>(count), &fusion, &fusion_)));
  const std::lock_guard lock(mutex_);
  gradients_ = std::move(gradients);
  return absl::OkStatus();
}

Status FusedList::open_communicator(HcclComm world) {
  if (comm_ != nullptr) return absl::OkStatus();
  static std::atomic<std::uint64_t> opened = 0;
  std::uint32_t size = 0, rank = 0;
  TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(world, &size)));
  TF_RETURN_IF_ERROR(to_status(HcclGetRankId(world, &rank)));
  std::vector<std::uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  number_ = opened++;
  const std::string name = "tensorflow_gradients_" + std::to_string(number_);
  std::strncpy(config.hcclCommName, name.c_str(), sizeof config.hcclCommName - 1);
  return to_status(
      HcclCreateSubCommConfig(&world, size, ranks.data(), number_, rank, &config, &comm_));
}

// Copies the gradients that no push of this step has copied.
Status FusedList::collect(OpKernelContext* context) {
  std::unique_lock lock(mutex_);
  const std::size_t count = gradients_.size();
  if (static_cast<std::size_t>(context->num_outputs()) != count) {
    return errors::Internal("hccl: a list of ", count, " gradients has ", context->num_outputs());
  }
  for (std::size_t i = 0; i < count; ++i) {
    Gradient& gradient = gradients_[i];
    const int input = input_of(count, i);
    const auto bytes = context->input(input).tensor_data();
    if (bytes.size() != gradient.bytes) {
      return errors::InvalidArgument("hccl: gradient ", input, " has ", bytes.size(),
                                     " bytes, and had ", gradient.bytes, " in the first step");
    }
    const int pushed = static_cast<int>(count) + input;
    if (context->input(pushed).scalar<std::int64_t>()() == step_) continue;
    copied_.wait(lock, [&] { return gradient.state != State::kCopying; });
    if (i < next_) {
      return errors::FailedPrecondition(
          "hccl: an earlier step was given up after the ranks had begun to reduce its gradients, "
          "or two steps run at once");
    }
    std::memcpy(gradient.data, bytes.data(), bytes.size());
    gradient.state = State::kCopied;
  }
  return hand_over();
}

// Copies each segment's results while later segments run.
Status FusedList::wait(OpKernelContext* context) {
  const Waiting waiting(comm_);
  const auto fusion = fusion_;
  TF_RETURN_IF_ERROR(to_status(HcclFusionMark(fusion, HCCL_FUSION_BP_END)));
  std::uint32_t number = 0;
  TF_RETURN_IF_ERROR(to_status(HcclFusionGetSegments(fusion, nullptr, &number)));
  std::vector<std::uint32_t> last(number);
  TF_RETURN_IF_ERROR(to_status(HcclFusionGetSegments(fusion, last.data(), &number)));
  std::size_t next = 0;
  for (std::uint32_t segment = 0; segment < number; ++segment) {
    TF_RETURN_IF_ERROR(to_status(HcclFusionWaitSegment(fusion, segment)));
    for (; next <= last[segment]; ++next) {
      const Gradient& gradient = gradients_[next];
      void *in = nullptr, *out = nullptr;
      TF_RETURN_IF_ERROR(forward(context, input_of(gradients_.size(), next), &in, &out));
      std::memcpy(out, gradient.data, gradient.bytes);
    }
  }
  TF_RETURN_IF_ERROR(to_status(HcclFusionWait(fusion)));
  TF_RETURN_IF_ERROR(to_status(HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END)));
  TF_RETURN_IF_ERROR(to_status(HcclFusionMark(fusion, HCCL_FUSION_FP_START)));
  const std::lock_guard lock(mutex_);
  for (Gradient& gradient : gradients_) gradient.state = State::kEmpty;
  next_ = 0;
  ++step_;
  return absl::OkStatus();
}

void FusedList::forget() {
  std::unique_lock lock(mutex_);
  if (reducing_) return;
  copied_.wait(lock, [&] {
    return std::all_of(gradients_.begin(), gradients_.end(),
                       [](const Gradient& each) { return each.state != State::kCopying; });
  });
  if (fusion_ != nullptr) static_cast<void>(HcclFusionDestroy(fusion_));
  if (comm_ != nullptr) static_cast<void>(HcclCommDestroy(comm_));
  fusion_ = nullptr;
  comm_ = nullptr;
  memory_.clear();
  gradients_.clear();
  next_ = 0;
}

}  // namespace hccl::tf
