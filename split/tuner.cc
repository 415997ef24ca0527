#include "split/tuner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace hccl::split {
namespace {

constexpr double kNew = 0.5;        // weight of a new window beside what was known
constexpr double kNearlyAll = 0.9;  // a segment that is so far behind backward runs alone
constexpr double kDrift = 0.2;      // of what was expected
constexpr double kHardly = 0.01;    // of the iteration: too little to matter
constexpr double kNothing = 0.001;  // of the end: what more segments must gain to be looked for
// What is exposed is a small part of the iteration, so fewer segments may cost little of that.
constexpr double kSlack = 0.001;
constexpr std::size_t kFew = 3;  // iterations: the median of fewer is no judge
constexpr int kDriftsInARow = 2;
constexpr int kAttempts = 6;                   // windows for what is not measured yet
constexpr std::uint64_t kLongestPause = 3200;  // iterations between probes
constexpr std::size_t kTriedPlans = 8;
constexpr std::uint64_t kStale = 1000;  // iterations after which what was measured counts no more
constexpr std::uint64_t kLately = 200;  // iterations
constexpr std::uint64_t kMostCalm = 16;
// The search with contention, or with a table, takes time with the square of the gradients.
constexpr std::size_t kMostUnits = 256;

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

/// Neighbouring gradients drawn together, so that there are few enough: each unit holds about the
/// same share of bytes and of time.
struct Units {
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready;
  std::vector<std::uint32_t> last;  // gradient of each unit
};

Units draw_together(const Problem& problem) {
  Units units;
  double total = 0, span = 0;
  for (const auto each : problem.bytes) total += static_cast<double>(each);
  for (const double each : problem.ready) span = std::max(span, each);
  const double share = 2.0 / static_cast<double>(kMostUnits);
  double bytes = 0, until = 0, begun = 0;
  for (std::size_t i = 0; i < problem.bytes.size(); ++i) {
    const auto size = static_cast<double>(problem.bytes[i]);
    until = std::max(until, problem.ready[i]);
    const bool full =
        !units.last.empty() && (bytes + size > share * total || until - begun > share * span);
    if (units.last.empty() || full) {
      units.bytes.push_back(0);
      units.ready.push_back(0);
      units.last.push_back(0);
      bytes = 0;
      begun = until;
    }
    bytes += size;
    units.bytes.back() += problem.bytes[i];
    units.ready.back() = until;
    units.last.back() = static_cast<std::uint32_t>(i);
  }
  return units;
}

}  // namespace

std::string words(const Plan& plan, double instead_of) {
  std::string text = segments_text(plan.last_indices) + "; predicted end " + ms(plan.end);
  if (instead_of > 0) {
    text += " instead of " + ms(instead_of) + " (" + percent(plan.end / instead_of - 1) + ")";
  }
  return text + ", lower bound " + ms(plan.lower_bound) + " (gap " + percent(plan.gap()) + ")";
}

Tuner::Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel model, bool can_overlap,
             bool keep)
    : bytes_(std::move(bytes)),
      model_(std::move(model)),
      can_overlap_(can_overlap),
      keep_(keep),
      now_(std::move(first)),
      overlap_now_(can_overlap) {}

std::optional<Contention> Tuner::contention() const {
  auto contention = contention_.contention();
  if (contention) contention->delay = delay_.value_or(0);
  return contention;
}

void Tuner::learn_costs(const Window::Kind& kind) {
  std::uint32_t first = 0;
  for (std::size_t k = 0; k < kind.seconds.size() && k < now_.size(); ++k) {
    std::uint64_t bytes = 0;
    for (; first <= now_[k]; ++first) bytes += bytes_[first];
    const double seconds = kind.seconds[k];
    const double behind = kind.start[k] + seconds - kind.compute_end;
    if (seconds > 0 && behind >= kNearlyAll * seconds)
      static_cast<void>(model_.add({bytes, seconds}, kind.iterations));
  }
}

// Whether segments of about the sizes of those in force have been measured.
bool Tuner::knows_costs() const {
  std::uint32_t first = 0;
  for (const std::uint32_t last : now_) {
    std::uint64_t bytes = 0;
    for (; first <= last; ++first) bytes += bytes_[first];
    if (!model_.has_learnt(bytes)) return false;
  }
  return true;
}

void Tuner::learn(const Window& window) {
  iteration_ = window.last_iteration;
  learn_costs(window.alone);
  learn_costs(window.overlapped);
  if (!window.alone.empty()) {
    if (ready_.empty()) {
      ready_ = window.alone.ready;
      compute_end_ = window.alone.compute_end;
    }
    // A single iteration says little.
    const double weight = window.alone.iterations < kFew ? kNew / 5 : kNew;
    for (std::size_t i = 0; i < ready_.size(); ++i)
      ready_[i] += weight * (window.alone.ready[i] - ready_[i]);
    compute_end_ += weight * (window.alone.compute_end - compute_end_);
    if (!overlap_now_ || version_ == 0)
      remember(now_, false, window.alone.end, window.last_iteration);
  }
  const Window::Kind& beside = window.overlapped;
  if (beside.empty()) return;
  remember(now_, true, beside.end, window.last_iteration);
  if (ready_.empty()) {
    ready_ = beside.ready;
    compute_end_ = beside.compute_end;
  }
  // Only windows that have both tell what one costs the other.
  if (!window.alone.empty() && std::min(window.alone.iterations, beside.iterations) >= kFew)
    learn_contention(window.alone, beside);
}

void Tuner::learn_contention(const Window::Kind& alone, const Window::Kind& beside) {
  ApartAndBeside measured;
  measured.compute_alone = alone.compute_end;
  measured.compute_beside = beside.compute_end;
  measured.compute_error = std::hypot(alone.compute_error, beside.compute_error);
  measured.work_error = std::hypot(alone.seconds_error, beside.seconds_error);
  std::vector<double> apart, together;  // of those that ran wholly beside compute
  for (std::size_t k = 0; k < beside.seconds.size(); ++k) {
    if (beside.start[k] + beside.seconds[k] > beside.compute_end) continue;
    apart.push_back(alone.seconds[k]);
    together.push_back(beside.seconds[k]);
  }
  if (const auto delay = delay_beside(apart, together))
    delay_ = delay_ ? *delay_ + kNew * (*delay - *delay_) : *delay;
  for (std::size_t k = 0; k < beside.seconds.size(); ++k) {
    const double end = beside.start[k] + beside.seconds[k];
    const double part = std::max(0.0, std::min(end, beside.compute_end) - beside.start[k]);
    const double busy = part - delay_.value_or(0);
    if (busy <= 0) continue;
    measured.busy += busy;
    measured.work += std::max(0.0, alone.seconds[k] - (beside.seconds[k] - part));
  }
  contention_.add(measured);
}

void Tuner::remember(const Segments& last_indices, bool overlap, double end,
                     std::uint64_t iteration) {
  std::erase_if(tried_, [&](const Tried& each) { return each.iteration + kStale < iteration; });
  for (Tried& each : tried_) {
    if (each.last_indices != last_indices || each.overlap != overlap) continue;
    each.end += kNew * (end - each.end);
    each.iteration = iteration;
    return;
  }
  tried_.push_back({last_indices, overlap, end, iteration});
  if (tried_.size() > kTriedPlans) tried_.pop_front();
}

const Tuner::Tried* Tuner::tried(const Segments& last_indices, bool overlap) const {
  for (const Tried& each : tried_)
    if (each.last_indices == last_indices && each.overlap == overlap) return &each;
  return nullptr;
}

Result<Plan> Tuner::plan_at_most(const Problem& problem) const {
  const bool affine = model_.is_affine();
  if (problem.bytes.size() <= kMostUnits || (affine && problem.contention.none()))
    return affine ? plan_segments(problem, model_.affine())
                  : plan_segments(problem, model_.table());
  const Units units = draw_together(problem);
  Problem smaller = problem;
  smaller.bytes = units.bytes;
  smaller.ready = units.ready;
  auto plan =
      affine ? plan_segments(smaller, model_.affine()) : plan_segments(smaller, model_.table());
  if (plan.ok())
    for (std::uint32_t& last : plan->last_indices) last = units.last[last];
  return plan;
}

// More and more segments, while they gain anything: most networks need few, and the search takes
// time with their number.
Result<Plan> Tuner::plan(const Problem& problem) const {
  Problem some = problem;
  some.max_segments =
      static_cast<std::uint32_t>(std::min<std::size_t>(problem.max_segments, kDocumentedSegments));
  auto found = plan_at_most(some);
  while (found.ok() && some.max_segments < problem.max_segments) {
    some.max_segments = std::min(2 * some.max_segments, problem.max_segments);
    auto more = plan_at_most(some);
    if (!more.ok()) return more;
    const bool enough = more->best_end > (1 - kNothing) * found->best_end;
    found = std::move(more);
    if (enough) break;
  }
  return found;
}

Result<Prediction> Tuner::predicted(const Problem& problem, const Segments& segments) const {
  return model_.is_affine() ? predict(problem, segments, model_.affine())
                            : predict(problem, segments, model_.table());
}

// What a plan will take that was never tried: as predicted, and as much more or less as the one of
// those tried lately took whose segments are most alike in number.
double Tuner::expected(const Problem& problem, const Plan& plan, bool overlap) const {
  const auto segments = static_cast<double>(plan.last_indices.size());
  const Tried* like = nullptr;
  const auto distance = [&](const Tried& each) {
    return std::abs(std::log(static_cast<double>(each.last_indices.size()) / segments));
  };
  for (const Tried& each : tried_) {
    if (each.overlap != overlap || each.iteration + kLately < iteration_) continue;
    if (like == nullptr || distance(each) <= distance(*like)) like = &each;
  }
  if (like == nullptr) return plan.end;
  Problem then = problem;  // behind backward all gradients are ready
  const std::vector<double> ended(problem.ready.size(), compute_end_);
  if (!overlap) then.ready = ended;
  const auto told = predicted(then, like->last_indices);
  return told.ok() ? plan.end + like->end - told->end : plan.end;
}

std::uint64_t Tuner::next_window(const Window& window, std::uint64_t windows) const {
  return window.last_iteration + kWindow * windows;
}

Decision Tuner::stay(const Window& window) {
  Decision decision;
  decision.version = version_;
  decision.last_indices = now_;
  decision.overlap = overlap_now_;
  decision.predicted_end = predicted_end_;
  decision.lower_bound = lower_bound_;
  decision.next_window =
      next_window(window, in_a_row_ > 0 ? 1 : std::clamp<std::uint64_t>(calm_, 1, kMostCalm));
  return decision;
}

Decision Tuner::change(Plan plan, bool overlap, const Window& window, std::string why) {
  now_ = std::move(plan.last_indices);
  overlap_now_ = overlap;
  if (can_overlap_ && !provisional_ && !home_ && !knows_costs() && ++attempts_ <= kAttempts)
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

// Whether compute or a segment is no longer what it was: then both must be measured apart again.
bool Tuner::drifted(const Window& window, const Prediction& told) const {
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
    auto rival = plan(other);
    if (!rival.ok() || rival->last_indices.size() < 2) return;
    const Segments& segments = rival->last_indices;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Plan& each) { return each.last_indices == segments; });
    if (known || (segments == now_ && overlap_now_)) return;
    const auto told = predicted(problem, segments);
    if (told.ok()) rival->end = told->end;
    rival->lower_bound = lower_bound_;
    found.push_back(std::move(rival).value());
  };
  if (overlap_now_ && !problem.contention.none()) {
    add(problem.contention, std::max<std::size_t>(2, now_.size() / 2));
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
  const bool due = overlap_now_ ? !rivals_tried_ && !provisional_ && tried(now_, true) != nullptr
                                : window.last_iteration >= probe_at_;
  if (!due) return std::nullopt;
  rivals_tried_ = true;
  rivals_ = rivals(problem);
  if (rivals_.empty()) return std::nullopt;
  home_ = Home{{now_, predicted_end_, predicted_end_, lower_bound_}, overlap_now_};
  provisional_ = !overlap_now_;
  return try_next(window);
}

Decision Tuner::try_next(const Window& window) {
  Plan next = std::move(rivals_.back());
  rivals_.pop_back();
  Decision decision = change(std::move(next), true, window,
                             home_->overlap ? "for one window, as it may be faster than predicted"
                                            : "for one window, to measure what overlap costs");
  decision.alternate = true;  // other segments tell more about costs and contention
  return decision;
}

// After such a window: the next rival, or to the fastest of all.
std::optional<Decision> Tuner::end_probe(const Window& window, bool overlap) {
  const Tried* const before = tried(home_->plan.last_indices, home_->overlap);
  const Tried* const current = tried(now_, true);
  const double gain = home_->overlap ? kGain / 4 : kGain;
  const bool faster = (overlap || home_->overlap) && before != nullptr && current != nullptr &&
                      current->end < before->end * (1 - gain);
  if (faster) home_ = Home{{now_, predicted_end_, predicted_end_, lower_bound_}, true};
  if (!rivals_.empty()) return try_next(window);
  provisional_ = false;
  const Home home = *std::exchange(home_, std::nullopt);
  if (home.overlap) probe_pause_ = kProbeAfter;
  if (faster) return std::nullopt;
  if (!home.overlap) {
    probe_pause_ = std::min(2 * probe_pause_, kLongestPause);
    probe_at_ = window.last_iteration + probe_pause_;
  }
  return change(home.plan, home.overlap, window,
                home.overlap ? "to the fastest of those tried" : "overlap still does not pay");
}

Decision Tuner::observe(const Window& window) {
  learn(window);
  if (ready_.empty()) return stay(window);
  const Contention contention = this->contention().value_or(Contention{});
  // Where nothing can run beside backward, every gradient is ready when it ends.
  std::vector<double> ready = ready_;
  if (!can_overlap_) std::fill(ready.begin(), ready.end(), compute_end_);
  const std::size_t most = can_overlap_ ? kMostSegments : 1;
  const Problem problem{bytes_, ready, static_cast<std::uint32_t>(most), kSlack, contention};
  auto found = plan(problem);
  if (!found.ok()) {
    Decision decision = stay(window);
    decision.why = found.status().message();
    return decision;
  }
  Plan best = std::move(found).value();
  const Prediction told = predicted(problem, now_).value();  // as plan() has found nothing wrong
  const double today = told.end;
  drifts_ = drifted(window, told) ? drifts_ + 1 : 0;
  const bool drift = drifts_ >= kDriftsInARow;
  if (drift) {  // what other plans took before is no measure any more
    delay_.reset();
    std::erase_if(tried_, [&](const Tried& each) {
      return each.last_indices != now_ || each.overlap != overlap_now_;
    });
  }
  const bool overlap = can_overlap_ && contention.overlap_pays() && best.last_indices.size() > 1;
  std::string why = words(best, today);
  if (!overlap) {
    why = (!can_overlap_ ? "nothing runs beside backward (hcom_parallel is off)"
           : !contention.overlap_pays()
               ? "overlap does not pay here (while both run, compute is at " +
                     percent(contention.compute) + " and communication at " +
                     percent(contention.communication) + " of its speed)"
               : "one segment is best") +
          std::string(": ") + why;
  }
  if (keep_) {
    predicted_end_ = today;
    lower_bound_ = best.lower_bound;
    ++calm_;
    Decision decision = stay(window);
    decision.why = "the best plan would be " + why;
    return decision;
  }
  if (home_) {
    if (auto decision = end_probe(window, overlap)) return *std::move(decision);
  }
  // Until contention is measured, some overlap is needed to measure it.
  const bool was_provisional = provisional_;
  provisional_ = can_overlap_ && !contention_.is_settled() && ++attempts_ <= kAttempts;
  const bool same = best.last_indices == now_ && overlap == overlap_now_;
  if (version_ == 0 && same) {  // the first plan is the best one: from now on it is ours
    return change(std::move(best), overlap, window, "the first segments stay: " + why);
  }
  const Tried* const before = tried(best.last_indices, overlap);
  const Tried* const current = tried(now_, overlap_now_);
  // What has been measured counts, and not what is predicted for it.
  double gain = today > 0 ? 1 - best.end / today : 0;
  if (current != nullptr)
    gain = 1 - (before != nullptr ? before->end : expected(problem, best, overlap)) / current->end;
  if (version_ == 0 || (was_provisional && !provisional_)) {
    if (!same && (version_ == 0 || gain > 0))
      return change(std::move(best), overlap, window, std::move(why));
  }
  // A plan that has turned out slower than one before it goes.
  const Tried* fastest = current;
  for (const Tried& each : tried_)
    if (fastest != nullptr && each.end < fastest->end) fastest = &each;
  const bool regret = fastest != current && fastest->end < current->end * (1 - kGain);
  if (regret || (!same && gain > kGain)) {
    calm_ = 0;
    if (++in_a_row_ >= kTimesInARow) {
      if (!regret || (!same && before == nullptr && gain > kGain))
        return change(std::move(best), overlap, window, std::move(why));
      Plan back{fastest->last_indices, fastest->end, fastest->end, best.lower_bound};
      return change(back, fastest->overlap, window,
                    "back to what was measured to be faster: " + words(back, current->end));
    }
  } else {
    in_a_row_ = 0;
    ++calm_;
  }
  if (auto decision = probe(window, problem)) return *std::move(decision);
  predicted_end_ = today;
  lower_bound_ = best.lower_bound;
  Decision decision = stay(window);
  decision.alternate = provisional_ || drift;
  if (decision.alternate) decision.next_window = next_window(window, 1);
  return decision;
}

}  // namespace hccl::split
