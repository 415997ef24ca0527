#include "split/engine/tuner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "split/plan_search.h"
#include "split/statistics.h"

namespace hccl::split {
namespace {

// The end of a plan with fewer segments may be later by this share. The share is small, because the
// communication after backward is a small part of the iteration.
constexpr double kSlack = 0.001;
constexpr double kNearlyAlike = 0.03;  // share of a window's time: smaller differences may be noise
constexpr std::size_t kLooks = 3;      // number of windows in which such a candidate runs
constexpr std::size_t kMostCandidates = 8;
constexpr int kRivals = 4;
constexpr double kNotWorthIt =
    1.1;  // a plan whose predicted end exceeds this multiple of the best plan's end is no rival
constexpr double kDrift = 0.2;    // share of an earlier time: a larger difference is a change
constexpr double kHardly = 0.01;  // share of the iteration: smaller differences do not matter
constexpr int kChangesInARow = 2;
constexpr std::uint64_t kLongestPause = 3200;  // iterations
constexpr std::uint64_t kMostCalm = 16;

std::string ms(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

}  // namespace

std::string to_string(const Plan& plan, double instead_of) {
  std::string text = segments_text(plan.last_indices) + "; predicted end " + ms(plan.end);
  if (instead_of > 0) {
    text += " instead of " + ms(instead_of) + " (" + percent(plan.end / instead_of - 1) + ")";
  }
  return text + ", lower bound " + ms(plan.lower_bound) + " (gap " + percent(plan.gap()) + ")";
}

Tuner::Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel costs, bool can_overlap,
             bool measure_only)
    : model_(std::move(bytes), std::move(costs)),
      can_overlap_(can_overlap),
      measure_only_(measure_only),
      candidates_{{{std::move(first), can_overlap}}},
      calm_(measure_only ? 1 : 0) {}

double Tuner::Candidate::end() const {
  return ends.empty() ? std::numeric_limits<double>::infinity() : median(ends);
}

double Tuner::predicted(const Problem& problem, std::size_t candidate) const {
  const auto told =
      predict(problem, candidates_[candidate].cut.last_indices, model_.costs().cost());
  return told.ok() ? told->end : 0;
}

const Window::Medians& Tuner::of(const Window& window) const {
  return candidates_[now_].cut.overlap ? window.overlapped : window.alone;
}

Decision Tuner::observe(const Window& window) {
  model_.learn(window, candidates_[now_].cut.last_indices);
  // If nothing can run during backward, every gradient is ready when backward ends.
  std::vector<double> ready = model_.ready();
  if (!can_overlap_) std::fill(ready.begin(), ready.end(), model_.compute_end());
  const std::size_t most = can_overlap_ ? kMostSegments : 1;
  const Problem problem{model_.bytes(), ready, static_cast<std::uint32_t>(most), kSlack,
                        model_.contention().value_or(Contention{})};
  const auto best = best_plan(problem, model_.costs().cost());
  Decision decision;
  if (best.ok()) {
    decision.why = reason(*best, predicted(problem, now_));
    const bool trying = calm_ == 0;
    const std::size_t before = now_;
    if (trying) now_ = try_candidates(window, problem, *best);
    decision.changed = trying && (now_ != before || version_ == 0);
    if (decision.changed) ++version_;
    if (!trying) watch(window);
    if (trying && calm_ > 0)
      decision.why = "the fastest of " + std::to_string(candidates_.size()) + " that were tried, " +
                     ms(candidates_[now_].end()) + "; " + decision.why;
    if (measure_only_) decision.why = "the best plan would be " + decision.why;
    if (!measure_only_ && !trying) decision.why.clear();
    decision.predicted_end = predicted(problem, now_);
    decision.lower_bound = best->lower_bound;
  } else {
    decision.why = best.status().message();
  }
  const Candidate& now = candidates_[now_];
  decision.version = version_;
  decision.last_indices = now.cut.last_indices;
  decision.overlap = now.cut.overlap;
  decision.alternate = calm_ == 0 && now.ends.empty();
  decision.next_window =
      window.last_iteration +
      Window::kIterations * (std::clamp<std::uint64_t>(calm_, 2, kMostCalm + 1) - 1);
  return decision;
}

// Returns the reason for the best plan.
std::string Tuner::reason(const Plan& best, double today) const {
  const Contention contention = model_.contention().value_or(Contention{});
  std::string why;
  if (!can_overlap_) {
    why = "nothing runs during backward (hcom_parallel is off): ";
  } else if (!contention.overlap_pays()) {
    why = "overlap does not pay here: ";
  } else if (best.last_indices.size() == 1) {
    why = "one segment is best: ";
  }
  why += to_string(best, today);
  if (contention.none()) return why;
  return why + "; while both run, compute is at " + percent(contention.compute) +
         " and communication at " + percent(contention.communication) + " of its speed";
}

// ---- until the fastest candidate is known ----

// Records the time of the current candidate, and returns the next candidate.
std::size_t Tuner::try_candidates(const Window& window, const Problem& problem, const Plan& best) {
  if (!of(window).empty()) candidates_[now_].ends.push_back(of(window).end);
  if (const auto next = next_trial(problem, best)) return *next;
  calm_ = 1;
  probe_at_ = window.last_iteration + std::clamp(window.last_iteration, kProbeAfter, kLongestPause);
  return fastest();
}

// Returns the best plan if its prediction is faster than all candidates so far. Otherwise returns
// the next rival or, after all rivals, a candidate whose first window differs so little from the
// fastest that noise may be the cause.
std::optional<std::size_t> Tuner::next_trial(const Problem& problem, const Plan& best) {
  const bool overlap =
      can_overlap_ && problem.contention.overlap_pays() && best.last_indices.size() > 1;
  const bool first = candidates_.size() == 1;
  const bool promises = best.end < (1 - kGain) * predicted(problem, fastest());
  if ((first || promises) && add({best.last_indices, overlap})) return candidates_.size() - 1;
  while (can_overlap_ && rivals_ < kRivals) {
    const auto cut = rival(rivals_++, problem, best);
    if (cut && add(*cut)) return candidates_.size() - 1;
  }
  const double limit = (1 + kNearlyAlike) * candidates_[fastest()].end();
  std::vector<std::size_t> alike;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i].end() <= limit) alike.push_back(i);
  if (alike.size() < 2) return std::nullopt;
  // The current candidate first, so that its windows follow each other.
  std::stable_partition(alike.begin(), alike.end(), [&](std::size_t i) { return i == now_; });
  for (const std::size_t i : alike)
    if (candidates_[i].ends.size() < kLooks) return i;
  return std::nullopt;
}

// Makes plans that may be faster than predicted, because the model is not exact. Number 0 is the
// best plan if overlap cost nothing. If overlap pays, 1 has half as many segments, and 2 is number
// 0 with at most kDocumentedSegments. The last rival is one segment, which runs after backward.
std::optional<Tuner::Cut> Tuner::rival(int number, const Problem& problem, const Plan& best) const {
  Problem other = problem;
  if (number == 0) {
    other.contention = {};
  } else if (number < kRivals - 1) {
    if (!problem.contention.overlap_pays()) return std::nullopt;
    const std::size_t half = std::max<std::size_t>(2, best.last_indices.size() / 2);
    other.max_segments = static_cast<std::uint32_t>(number == 1 ? half : kDocumentedSegments);
    if (number == 2) other.contention = {};
  } else {
    other.max_segments = 1;
  }
  const auto plan = best_plan(other, model_.costs().cost());
  if (!plan.ok()) return std::nullopt;
  const auto told = predict(problem, plan->last_indices, model_.costs().cost());
  if (number > 0 && told.ok() && told->end > kNotWorthIt * best.end) return std::nullopt;
  return Cut{plan->last_indices, plan->last_indices.size() > 1};
}

bool Tuner::add(const Cut& cut) {
  const bool known = std::any_of(candidates_.begin(), candidates_.end(),
                                 [&](const Candidate& each) { return each.cut == cut; });
  if (known || candidates_.size() == kMostCandidates) return false;
  candidates_.push_back({cut});
  return true;
}

std::size_t Tuner::fastest() const {
  const auto at =
      std::min_element(candidates_.begin(), candidates_.end(),
                       [](const Candidate& a, const Candidate& b) { return a.end() < b.end(); });
  return static_cast<std::size_t>(at - candidates_.begin());
}

// ---- after the fastest candidate is known ----

// Starts again if the times have changed. Also starts again from time to time if nothing overlaps,
// because then no measurement shows the cost of overlap.
void Tuner::watch(const Window& window) {
  ++calm_;
  if (measure_only_) return;
  // Later windows are compared with the first window after the trial: during the trial every second
  // iteration ran without overlap.
  if (calm_ == 2) usual_ = of(window);
  changes_in_a_row_ = has_changed(window) ? changes_in_a_row_ + 1 : 0;
  if (changes_in_a_row_ > 0) calm_ = 2;
  const bool probe =
      can_overlap_ && !candidates_[now_].cut.overlap && window.last_iteration >= probe_at_;
  if (!probe && changes_in_a_row_ < kChangesInARow) return;
  candidates_ = {{candidates_[now_].cut}};
  now_ = 0;
  rivals_ = 0;
  calm_ = 0;
  changes_in_a_row_ = 0;
}

bool Tuner::has_changed(const Window& window) const {
  const Window::Medians& before = usual_;
  const Window::Medians& now = of(window);
  if (before.empty() || now.empty()) return false;
  const auto far = [&](double measured, double expected) {
    return std::abs(measured - expected) > kDrift * expected + kHardly * before.end;
  };
  if (far(now.compute_end, before.compute_end)) return true;
  for (std::size_t k = 0; k < now.seconds.size(); ++k)
    if (far(now.seconds[k], before.seconds[k])) return true;
  return false;
}

}  // namespace hccl::split
