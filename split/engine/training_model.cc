#include "split/engine/training_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "split/plan_search.h"

namespace hccl::split {
namespace {

constexpr double kNew = 0.5;        // weight of a new window beside what was known
constexpr double kNearlyAll = 0.9;  // a segment that is so far behind backward runs alone
constexpr double kDrift = 0.2;      // of what was expected
constexpr double kHardly = 0.01;    // of the iteration: too little to matter
constexpr std::size_t kFew = 3;     // iterations: the median of fewer is no judge
constexpr std::size_t kTriedCuts = 8;
constexpr std::uint64_t kStale = 1000;  // iterations after which what was measured counts no more
constexpr std::uint64_t kLately = 200;  // iterations

}  // namespace

TrainingModel::TrainingModel(std::vector<std::uint64_t> bytes, CostModel costs)
    : bytes_(std::move(bytes)), costs_(std::move(costs)) {}

std::vector<std::uint64_t> TrainingModel::sizes(const Segments& last_indices) const {
  std::vector<std::uint64_t> sizes;
  std::uint32_t first = 0;
  for (const std::uint32_t last : last_indices) {
    std::uint64_t bytes = 0;
    for (; first <= last; ++first) bytes += bytes_[first];
    sizes.push_back(bytes);
  }
  return sizes;
}

bool TrainingModel::knows_costs(const Segments& last_indices) const {
  const auto sizes = this->sizes(last_indices);
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](std::uint64_t bytes) { return costs_.has_learnt(bytes); });
}

// ---- learning ----

void TrainingModel::learn(const Window& window, const Cut& cut, bool both) {
  iteration_ = window.last_iteration;
  const Window::Kind& alone = window.alone;
  const Window::Kind& beside = window.overlapped;
  learn_costs(alone, cut.last_indices);
  learn_costs(beside, cut.last_indices);
  if (!alone.empty()) {
    learn_times(alone);
    if (both || !cut.overlap) remember({cut.last_indices, false}, alone.end);
  }
  if (beside.empty()) return;
  remember({cut.last_indices, true}, beside.end);
  if (ready_.empty()) {
    ready_ = beside.ready;
    compute_end_ = beside.compute_end;
  }
  // Only windows that have both tell what one costs the other.
  if (alone.empty() || std::min(alone.iterations, beside.iterations) < kFew) return;
  ApartAndBeside measured;
  measured.compute_alone = alone.compute_end;
  measured.compute_beside = beside.compute_end;
  measured.compute_error = std::hypot(alone.compute_error, beside.compute_error);
  measured.work_error = std::hypot(alone.seconds_error, beside.seconds_error);
  std::vector<SegmentApartAndBeside> segments;
  for (std::size_t k = 0; k < beside.seconds.size(); ++k) {
    const double until = std::min(beside.start[k] + beside.seconds[k], beside.compute_end);
    segments.push_back(
        {alone.seconds[k], beside.seconds[k], std::max(0.0, until - beside.start[k])});
  }
  contention_.add(measured, segments);
}

void TrainingModel::learn_costs(const Window::Kind& kind, const Segments& last_indices) {
  const auto sizes = this->sizes(last_indices);
  for (std::size_t k = 0; k < kind.seconds.size() && k < sizes.size(); ++k) {
    const double seconds = kind.seconds[k];
    const double behind = kind.start[k] + seconds - kind.compute_end;
    if (seconds > 0 && behind >= kNearlyAll * seconds)
      static_cast<void>(costs_.add({sizes[k], seconds}, kind.iterations));
  }
}

void TrainingModel::learn_times(const Window::Kind& alone) {
  if (ready_.empty()) {
    ready_ = alone.ready;
    compute_end_ = alone.compute_end;
  }
  // A single iteration says little.
  const double weight = alone.iterations < kFew ? kNew / 5 : kNew;
  for (std::size_t i = 0; i < ready_.size(); ++i)
    ready_[i] += weight * (alone.ready[i] - ready_[i]);
  compute_end_ += weight * (alone.compute_end - compute_end_);
}

// ---- cuts that were tried ----

void TrainingModel::remember(const Cut& cut, double end) {
  std::erase_if(tried_, [&](const Tried& each) { return each.iteration + kStale < iteration_; });
  for (Tried& each : tried_) {
    if (each.cut != cut) continue;
    each.end += kNew * (end - each.end);
    each.iteration = iteration_;
    return;
  }
  tried_.push_back({cut, end, iteration_});
  if (tried_.size() > kTriedCuts) tried_.pop_front();
}

const TrainingModel::Tried* TrainingModel::tried(const Cut& cut) const {
  for (const Tried& each : tried_)
    if (each.cut == cut) return &each;
  return nullptr;
}

const TrainingModel::Tried* TrainingModel::fastest() const {
  const auto at = std::min_element(tried_.begin(), tried_.end(),
                                   [](const Tried& a, const Tried& b) { return a.end < b.end; });
  return at == tried_.end() ? nullptr : &*at;
}

double TrainingModel::expected(const Problem& problem, const Plan& plan, bool overlap) const {
  const auto segments = static_cast<double>(plan.last_indices.size());
  const Tried* like = nullptr;
  const auto distance = [&](const Tried& each) {
    return std::abs(std::log(static_cast<double>(each.cut.last_indices.size()) / segments));
  };
  for (const Tried& each : tried_) {
    if (each.cut.overlap != overlap || each.iteration + kLately < iteration_) continue;
    if (like == nullptr || distance(each) <= distance(*like)) like = &each;
  }
  if (like == nullptr) return plan.end;
  Problem then = problem;  // behind backward all gradients are ready
  const std::vector<double> ended(problem.ready.size(), compute_end_);
  if (!overlap) then.ready = ended;
  const auto told = predict(then, like->cut.last_indices, costs_);
  return told.ok() ? plan.end + like->end - told->end : plan.end;
}

// ---- change ----

bool TrainingModel::has_changed(const Window& window, const Prediction& told) const {
  const Window::Kind& beside = window.overlapped;
  // Half of the change is in compute_end_ already.
  if (beside.empty()) return std::abs(window.alone.compute_end / compute_end_ - 1) > kDrift / 2;
  if (!window.alone.empty()) return false;
  const auto far = [&](double measured, double expected) {
    return std::abs(measured - expected) > kDrift * expected + kHardly * told.end;
  };
  if (far(beside.compute_end, told.compute_end)) return true;
  for (std::size_t k = 0; k < beside.seconds.size() && k < told.segments.size(); ++k)
    if (far(beside.seconds[k], told.segments[k].end - told.segments[k].start)) return true;
  return false;
}

void TrainingModel::forget_but(const Cut& cut) {
  contention_.forget_delay();
  std::erase_if(tried_, [&](const Tried& each) { return each.cut != cut; });
}

}  // namespace hccl::split
