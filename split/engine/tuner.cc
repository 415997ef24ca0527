#include "split/engine/tuner.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "split/plan_search.h"

namespace hccl::split {
namespace {

// What is exposed is a small part of the iteration, so fewer segments may cost little of that.
constexpr double kSlack = 0.001;
constexpr double kNearlyAlike = 0.03;  // of what a window measures: noise may decide
constexpr int kLooks = 3;              // windows for each of those
constexpr int kDriftsInARow = 2;
constexpr int kAttempts = 6;                   // windows for what is not measured yet
constexpr std::uint64_t kLongestPause = 3200;  // iterations between probes
constexpr std::uint64_t kMostCalm = 16;

std::string ms(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", 1e3 * seconds);
  return text;
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
  return text;
}

}  // namespace

std::string words(const Plan& plan, double instead_of) {
  std::string text = segments_text(plan.last_indices) + "; predicted end " + ms(plan.end);
  if (instead_of > 0) {
    text += " instead of " + ms(instead_of) + " (" + percent(plan.end / instead_of - 1) + ")";
  }
  return text + ", lower bound " + ms(plan.lower_bound) + " (gap " + percent(plan.gap()) + ")";
}

Tuner::Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel costs, bool can_overlap,
             bool keep)
    : model_(std::move(bytes), std::move(costs)),
      can_overlap_(can_overlap),
      keep_(keep),
      now_{std::move(first), can_overlap} {}

std::uint64_t Tuner::next_window(const Window& window, std::uint64_t windows) const {
  return window.last_iteration + kWindow * windows;
}

Decision Tuner::stay(const Window& window) {
  Decision decision;
  decision.version = version_;
  decision.last_indices = now_.last_indices;
  decision.overlap = now_.overlap;
  decision.predicted_end = predicted_end_;
  decision.lower_bound = lower_bound_;
  decision.next_window =
      next_window(window, in_a_row_ > 0 ? 1 : std::clamp<std::uint64_t>(calm_, 1, kMostCalm));
  return decision;
}

Decision Tuner::change(Plan plan, bool overlap, const Window& window, std::string why) {
  now_ = {std::move(plan.last_indices), overlap};
  const bool measures_anew = can_overlap_ && !provisional_ && !home_;
  if (measures_anew && !model_.knows_costs(now_.last_indices) && ++attempts_ <= kAttempts)
    provisional_ = true;
  predicted_end_ = plan.end;
  lower_bound_ = plan.lower_bound;
  ++version_;
  in_a_row_ = 0;
  calm_ = 0;
  Decision decision = stay(window);
  decision.changed = true;
  decision.alternate = provisional_;
  decision.why = std::move(why);
  return decision;
}

// Plans that may be faster than predicted, the next one at the back: the best one if overlap cost
// nothing and, where plans overlap though it costs something, its like with few segments and the
// best one with half as many as now.
std::vector<Plan> Tuner::rivals(const Problem& problem) const {
  std::vector<Plan> found;
  const auto add = [&](const Contention& contention, std::size_t most) {
    Problem other = problem;
    other.contention = contention;
    other.max_segments =
        static_cast<std::uint32_t>(std::min<std::size_t>(most, problem.max_segments));
    auto rival = best_plan(other, model_.costs());
    if (!rival.ok() || rival->last_indices.size() < 2) return;
    const Segments& segments = rival->last_indices;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Plan& each) { return each.last_indices == segments; });
    if (known || now_ == Cut{segments, true}) return;
    const auto told = predict(problem, segments, model_.costs());
    if (told.ok()) rival->end = told->end;
    rival->lower_bound = lower_bound_;
    found.push_back(std::move(rival).value());
  };
  if (now_.overlap && !problem.contention.none()) {
    add(problem.contention, std::max<std::size_t>(2, now_.last_indices.size() / 2));
    add({}, kDocumentedSegments);
  }
  add({}, problem.max_segments);
  return found;
}

// Where plans overlap, rivals are tried once, because the model is not the world, and what is
// measured counts. Where none does, now and then, because nobody sees there what overlap would cost
// today.
std::optional<Decision> Tuner::probe(const Window& window, const Problem& problem) {
  if (!can_overlap_ || version_ == 0) return std::nullopt;
  const bool due = now_.overlap ? !rivals_tried_ && !provisional_ && model_.tried(now_) != nullptr
                                : window.last_iteration >= probe_at_;
  if (!due) return std::nullopt;
  rivals_tried_ = true;
  rivals_ = rivals(problem);
  if (rivals_.empty()) return std::nullopt;
  home_ = Home{{now_.last_indices, predicted_end_, predicted_end_, lower_bound_}, now_.overlap};
  provisional_ = !now_.overlap;
  contenders_ = rivals_;
  if (home_->overlap) contenders_.push_back(home_->plan);
  looks_ = home_->overlap ? 1 : kLooks;
  return try_next(window);
}

// All that one look may not have told apart from the fastest, and that one; or none.
std::vector<Plan> Tuner::nearly_alike() const {
  const Tried* const fastest = model_.tried({home_->plan.last_indices, true});
  if (fastest == nullptr) return {};
  std::vector<Plan> alike;
  for (const Plan& each : contenders_) {
    const Tried* const measured = model_.tried({each.last_indices, true});
    if (measured != nullptr && measured->end <= (1 + kNearlyAlike) * fastest->end)
      alike.push_back(each);
  }
  if (alike.size() < 2) return {};
  return alike;
}

Decision Tuner::try_next(const Window& window) {
  Plan next = std::move(rivals_.back());
  rivals_.pop_back();
  const bool again = home_->overlap && looks_ > 1;
  Decision decision = change(std::move(next), true, window,
                             again            ? "for another window, as some plans are nearly alike"
                             : home_->overlap ? "for one window, as it may be faster than predicted"
                                              : "for one window, to measure what overlap costs");
  decision.alternate = !again;  // other segments tell more about costs and contention
  return decision;
}

// The fastest of all that were tried, as measured.
void Tuner::find_home() {
  const Tried* fastest = model_.tried({home_->plan.last_indices, home_->overlap});
  if (fastest == nullptr) return;
  const double gain = home_->overlap ? kGain / 4 : kGain;
  double end = fastest->end * (1 - gain);
  for (const Plan& each : contenders_) {
    const Tried* const measured = model_.tried({each.last_indices, true});
    if (measured == nullptr || measured->end >= end) continue;
    home_ = Home{each, true};
    end = measured->end;
  }
}

// After such a window: the next rival, or to the fastest of all.
std::optional<Decision> Tuner::end_probe(const Window& window, bool overlap) {
  if (overlap || home_->overlap) find_home();
  if (rivals_.empty() && looks_ < kLooks) {
    ++looks_;
    rivals_ = nearly_alike();
  }
  if (!rivals_.empty()) return try_next(window);
  provisional_ = false;
  const Home home = *std::exchange(home_, std::nullopt);
  if (home.overlap) probe_pause_ = kProbeAfter;
  if (now_ == Cut{home.plan.last_indices, home.overlap}) return std::nullopt;
  if (!home.overlap) {
    probe_pause_ = std::min(2 * probe_pause_, kLongestPause);
    probe_at_ = window.last_iteration + probe_pause_;
  }
  return change(home.plan, home.overlap, window,
                home.overlap ? "to the fastest of those tried" : "overlap still does not pay");
}

// Why the best plan is what it is.
std::string Tuner::reason(const Outlook& outlook, const Contention& contention) const {
  std::string plan = words(outlook.best, outlook.today);
  if (outlook.overlap) return plan;
  if (!can_overlap_) return "nothing runs beside backward (hcom_parallel is off): " + plan;
  if (contention.overlap_pays()) return "one segment is best: " + plan;
  return "overlap does not pay here (while both run, compute is at " + percent(contention.compute) +
         " and communication at " + percent(contention.communication) + " of its speed): " + plan;
}

Decision Tuner::observe(const Window& window) {
  model_.learn(window, now_, version_ == 0);
  if (!model_.knows_times()) return stay(window);
  const Contention contention = model_.contention().value_or(Contention{});
  // Where nothing can run beside backward, every gradient is ready when it ends.
  std::vector<double> ready = model_.ready();
  if (!can_overlap_) std::fill(ready.begin(), ready.end(), model_.compute_end());
  const std::size_t most = can_overlap_ ? kMostSegments : 1;
  const Problem problem{model_.bytes(), ready, static_cast<std::uint32_t>(most), kSlack,
                        contention};
  auto best = best_plan(problem, model_.costs());
  if (!best.ok()) {
    Decision decision = stay(window);
    decision.why = best.status().message();
    return decision;
  }
  // As best_plan() has found nothing wrong.
  const Prediction told = predict(problem, now_.last_indices, model_.costs()).value();
  drifts_ = model_.has_changed(window, told) ? drifts_ + 1 : 0;
  const bool drift = drifts_ >= kDriftsInARow;
  if (drift) model_.forget_but(now_);
  const bool overlap = can_overlap_ && contention.overlap_pays() && best->last_indices.size() > 1;
  Outlook outlook{problem, std::move(best).value(), told.end, overlap, drift, {}};
  outlook.why = reason(outlook, contention);
  if (keep_) {
    ++calm_;
    Decision decision = go_on(window, outlook);
    decision.why = "the best plan would be " + outlook.why;
    return decision;
  }
  if (home_) {
    if (auto decision = end_probe(window, overlap)) return *std::move(decision);
  }
  if (auto decision = improve(window, outlook)) return *std::move(decision);
  if (auto decision = probe(window, problem)) return *std::move(decision);
  Decision decision = go_on(window, outlook);
  decision.alternate = provisional_ || drift;
  if (decision.alternate) decision.next_window = next_window(window, 1);
  return decision;
}

// With the plan in force and what is expected of it today.
Decision Tuner::go_on(const Window& window, const Outlook& outlook) {
  predicted_end_ = outlook.today;
  lower_bound_ = outlook.best.lower_bound;
  return stay(window);
}

// Another plan, if one is better by enough for long enough.
std::optional<Decision> Tuner::improve(const Window& window, const Outlook& outlook) {
  const Plan& best = outlook.best;
  // Until contention is measured, some overlap is needed to measure it.
  const bool was_provisional = provisional_;
  provisional_ = can_overlap_ && !model_.contention_is_settled() && ++attempts_ <= kAttempts;
  const Cut cut{best.last_indices, outlook.overlap};
  const bool same = now_ == cut;
  if (version_ == 0 && same) {  // the first plan is the best one: from now on it is ours
    return change(best, cut.overlap, window, "the first segments stay: " + outlook.why);
  }
  const Tried* const before = model_.tried(cut);
  const Tried* const current = model_.tried(now_);
  // What has been measured counts, and not what is predicted for it.
  double gain = outlook.today > 0 ? 1 - best.end / outlook.today : 0;
  if (current != nullptr) {
    const double end =
        before != nullptr ? before->end : model_.expected(outlook.problem, best, cut.overlap);
    gain = 1 - end / current->end;
  }
  const bool now_known = was_provisional && !provisional_;
  if (!same && (version_ == 0 || (now_known && gain > 0))) {
    return change(best, cut.overlap, window, outlook.why);
  }
  // A plan that has turned out slower than one before it goes.
  const Tried* const fastest = model_.fastest();
  const bool regret = current != nullptr && fastest->end < current->end * (1 - kGain);
  if (!regret && (same || gain <= kGain)) {
    in_a_row_ = 0;
    ++calm_;
    return std::nullopt;
  }
  calm_ = 0;
  if (++in_a_row_ < kTimesInARow) return std::nullopt;
  if (!regret || (!same && before == nullptr && gain > kGain)) {
    return change(best, cut.overlap, window, outlook.why);
  }
  Plan back{fastest->cut.last_indices, fastest->end, fastest->end, best.lower_bound};
  std::string why = "back to what was measured to be faster: " + words(back, current->end);
  return change(std::move(back), fastest->cut.overlap, window, std::move(why));
}

}  // namespace hccl::split
