#include "split/engine/training_model.h"

#include <algorithm>
#include <utility>

namespace hccl::split {
namespace {

constexpr double kNew = 0.5;        // weight of a new window beside the earlier windows
constexpr double kNearlyAll = 0.9;  // a segment with this share after backward counts as alone
constexpr std::size_t kFew = 3;     // the median of fewer iterations is not reliable

}  // namespace

TrainingModel::TrainingModel(std::vector<std::uint64_t> bytes, CostModel costs)
    : bytes_(std::move(bytes)), costs_(std::move(costs)) {}

void TrainingModel::learn(const Window& window, const Segments& last_indices) {
  const Window::Medians& alone = window.alone;
  const Window::Medians& beside = window.overlapped;
  learn_costs(alone, last_indices);
  learn_costs(beside, last_indices);
  if (!alone.empty()) learn_times(alone, alone.iterations < kFew ? kNew / 5 : kNew);
  if (ready_.empty()) learn_times(beside, 1);
  // Only windows with both kinds of iterations show how compute and communication slow each other.
  if (alone.empty() || std::min(alone.iterations, beside.iterations) < kFew) return;
  ApartAndBeside measured{alone.compute_end, beside.compute_end};
  for (std::size_t k = 0; k < beside.seconds.size(); ++k) {
    const double end = beside.start[k] + beside.seconds[k];
    const double busy = std::min(end, beside.compute_end) - beside.start[k];
    if (busy <= 0) continue;
    measured.busy += busy;
    measured.work += std::max(0.0, alone.seconds[k] - (beside.seconds[k] - busy));
  }
  const auto found = contention_of(measured);
  if (!found) return;
  if (!contention_) contention_ = *found;
  contention_->compute += kNew * (found->compute - contention_->compute);
  contention_->communication += kNew * (found->communication - contention_->communication);
}

void TrainingModel::learn_times(const Window::Medians& kind, double weight) {
  if (ready_.empty()) {
    ready_ = kind.ready;
    compute_end_ = kind.compute_end;
  }
  for (std::size_t i = 0; i < ready_.size(); ++i) ready_[i] += weight * (kind.ready[i] - ready_[i]);
  compute_end_ += weight * (kind.compute_end - compute_end_);
}

void TrainingModel::learn_costs(const Window::Medians& kind, const Segments& last_indices) {
  std::uint32_t first = 0;
  for (std::size_t k = 0; k < kind.seconds.size() && k < last_indices.size(); ++k) {
    std::uint64_t bytes = 0;
    for (; first <= last_indices[k]; ++first) bytes += bytes_[first];
    const double seconds = kind.seconds[k];
    const double behind = kind.start[k] + seconds - kind.compute_end;
    if (seconds > 0 && behind >= kNearlyAll * seconds)
      static_cast<void>(costs_.add({bytes, seconds}));
  }
}

}  // namespace hccl::split
