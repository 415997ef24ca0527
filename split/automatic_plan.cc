#include "split/automatic_plan.h"

#include <algorithm>
#include <utility>

#include "split/agreement.h"

namespace hccl::split {
namespace {

// One iteration in so many runs without overlap, to see how fast compute is alone.
constexpr std::uint64_t kAloneEvery = 200;

double seconds(std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

/// The iterations of a window: all of them, and by kind (behind backward, beside it).
struct Iterations {
  std::vector<Times*> all;
  std::vector<const Times*> kinds[2];
};

Iterations iterations_of(Times& now, std::deque<Times>& past, std::uint64_t begin) {
  Iterations found;
  found.all.push_back(&now);
  for (auto at = past.rbegin(); at != past.rend(); ++at) {
    if (at->number <= begin || at->number + Tuner::kWindow <= now.number) break;
    found.all.push_back(&*at);
  }
  for (const Times* each : found.all) found.kinds[each->overlapped ? 1 : 0].push_back(each);
  return found;
}

template <class Get>
double median_of(const std::vector<const Times*>& items, const Get& get) {
  std::vector<std::int64_t> values;
  values.reserve(items.size());
  for (const Times* each : items) values.push_back(get(*each));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return seconds(*middle);
}

/// This rank's part of the one message: the medians of each kind, and when compute ended in each
/// iteration, negative because the latest rank counts; and the time of every segment, of which the
/// shortest does.
std::vector<double> message_of(const Iterations& window, std::size_t gradients,
                               std::size_t segments) {
  std::vector<double> message;
  for (const auto& kind : window.kinds) {
    if (kind.empty()) continue;
    const auto put = [&](const auto& get) {
      message.push_back(-median_of(kind, [&](const Times& t) { return get(t) - t.begin; }));
    };
    for (std::size_t i = 0; i < gradients; ++i) put([i](const Times& t) { return t.ready[i]; });
    put([](const Times& t) { return t.compute_end(); });
    put([](const Times& t) { return t.wait_end; });
    for (std::size_t s = 0; s < segments; ++s) put([s](const Times& t) { return t.start[s]; });
    for (const Times* each : kind) message.push_back(-seconds(each->compute_end() - each->begin));
  }
  for (const Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s)
      message.push_back(seconds(each->end[s] - each->start[s]));
  }
  return message;
}

/// The same of all ranks, in the tuner's terms.
Window read(const std::vector<double>& message, const Iterations& window, std::size_t gradients,
            std::size_t segments) {
  Window out;
  auto next = message.begin();
  for (int k = 0; k < 2; ++k) {
    const auto& iterations = window.kinds[k];
    if (iterations.empty()) continue;
    Window::Kind& kind = k == 0 ? out.alone : out.overlapped;
    const auto take = [&] { return std::max(0.0, -*next++); };
    for (std::size_t i = 0; i < gradients; ++i) kind.ready.push_back(take());
    kind.compute_end = take();
    kind.end = take();
    for (std::size_t s = 0; s < segments; ++s) kind.start.push_back(take());
    std::vector<double> ends;
    for (std::size_t i = 0; i < iterations.size(); ++i) ends.push_back(take());
    kind.compute_error = error_of_median(std::move(ends));
  }
  for (Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s) {
      const std::int64_t took = each->end[s] - each->start[s];
      const auto pure = static_cast<std::int64_t>(1e9 * *next++);
      each->wait_for_peer[s] = std::clamp<std::int64_t>(took - pure, 0, took);
    }
  }
  for (int k = 0; k < 2; ++k) {
    const auto& iterations = window.kinds[k];
    if (iterations.empty()) continue;
    Window::Kind& kind = k == 0 ? out.alone : out.overlapped;
    const auto pure = [](const Times& t, std::size_t s) {
      return t.end[s] - t.start[s] - t.wait_for_peer[s];
    };
    for (std::size_t s = 0; s < segments; ++s)
      kind.seconds.push_back(median_of(iterations, [&](const Times& t) { return pure(t, s); }));
    std::vector<double> sums(iterations.size(), 0);
    for (std::size_t i = 0; i < iterations.size(); ++i)
      for (std::size_t s = 0; s < segments; ++s) sums[i] += seconds(pure(*iterations[i], s));
    kind.seconds_error = error_of_median(std::move(sums));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<AutomaticPlan>> AutomaticPlan::create(
    std::shared_ptr<core::Communicator> communicator, std::vector<std::uint64_t> bytes,
    const Segments& first, bool parallel, bool keep) {
  std::uint64_t total = 0;
  for (const auto each : bytes) total += each;
  HCCL_ASSIGN_OR_RETURN(const auto samples, probe(*communicator, total));
  HCCL_ASSIGN_OR_RETURN(CostModel model, CostModel::create(samples));
  communicator->log()->info(
      "gradient plan: an allreduce costs {:.1f} us and 1 s for {:.3f} GB (line is {:.0f} % off)",
      1e6 * model.affine().start, 1e-9 / model.affine().per_byte, 100 * model.misfit());
  std::unique_ptr<AutomaticPlan> made(new AutomaticPlan(std::move(communicator), bytes.size()));
  if (made->communicator_->rank() == 0)
    made->tuner_ =
        std::make_unique<Tuner>(std::move(bytes), first, std::move(model), parallel, keep);
  return made;
}

bool AutomaticPlan::overlaps(std::uint64_t iteration) const {
  return overlap_ && (alternate_ ? iteration % 2 != 0 : iteration % kAloneEvery != 0);
}

Result<Decision> AutomaticPlan::end_window(Times& now, std::deque<Times>& past) {
  const Iterations iterations = iterations_of(now, past, begin_);
  const std::size_t segments = now.layout->last_indices.size();
  std::vector<double> message = message_of(iterations, gradients_, segments);
  HCCL_RETURN_IF_ERROR(minimum(*communicator_, message));
  Window window = read(message, iterations, gradients_, segments);
  window.last_iteration = now.number;
  Decision decision;
  if (tuner_) decision = tuner_->observe(window);
  HCCL_RETURN_IF_ERROR(tell(*communicator_, decision, gradients_));
  log(decision, now.number);
  overlap_ = decision.overlap;
  alternate_ = decision.alternate;
  next_window_ = decision.next_window;
  if (decision.changed) begin_ = now.number;
  return decision;
}

void AutomaticPlan::log(const Decision& decision, std::uint64_t iteration) const {
  const auto& log = communicator_->log();
  if (decision.changed) {
    log->info("gradient plan {} from iteration {} on: {}{}", decision.version, iteration + 1,
              segments_text(decision.last_indices), decision.overlap ? "" : ", behind backward");
  }
  if (!tuner_ || decision.why.empty()) return;
  const Contention contention = tuner_->contention().value_or(Contention{});
  if (!contention.none()) {
    log->info("gradient plan: while both run, compute is at {:.0f} % and communication at {:.0f} %",
              100 * contention.compute, 100 * contention.communication);
  }
  log->info("gradient plan: {}", decision.why);
}

}  // namespace hccl::split
