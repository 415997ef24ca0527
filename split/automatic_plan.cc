#include "split/automatic_plan.h"

#include <algorithm>
#include <utility>

#include "split/agreement.h"
#include "split/statistics.h"

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
  std::vector<double> values;
  values.reserve(items.size());
  for (const Times* each : items) values.push_back(seconds(get(*each)));
  return median(std::move(values));
}

/// This rank's part of the one message. Negative is that of which the latest rank counts: the
/// medians of each kind, and what each iteration says for itself. Last the time of every segment,
/// of which the shortest counts.
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
    for (const Times* each : kind) {
      const auto put_one = [&](std::int64_t t) { message.push_back(-seconds(t - each->begin)); };
      put_one(each->compute_end());
      put_one(each->wait_end);
      for (std::size_t s = 0; s < segments; ++s) put_one(each->start[s]);
      for (std::size_t s = 0; s < segments; ++s) put_one(each->end[s]);
    }
  }
  for (const Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s)
      message.push_back(seconds(each->end[s] - each->start[s]));
  }
  return message;
}

/// The same of all ranks, in the tuner's terms. A segment takes from when the last rank begins it
/// until the last one has it: so those that run one behind the other add up to what passes.
Window read(const std::vector<double>& message, const Iterations& window, std::size_t gradients,
            std::size_t segments) {
  Window out;
  auto next = message.begin();
  const auto take = [&] { return std::max(0.0, -*next++); };
  for (int k = 0; k < 2; ++k) {
    const std::size_t count = window.kinds[k].size();
    if (count == 0) continue;
    Window::Kind& kind = k == 0 ? out.alone : out.overlapped;
    for (std::size_t i = 0; i < gradients; ++i) kind.ready.push_back(take());
    kind.compute_end = take();
    std::vector<double> compute_ends, ends, sums(count, 0);
    std::vector<std::vector<double>> starts(segments), took(segments);
    for (std::size_t i = 0; i < count; ++i) {
      compute_ends.push_back(take());
      ends.push_back(take());
      for (std::size_t s = 0; s < segments; ++s) starts[s].push_back(take());
      for (std::size_t s = 0; s < segments; ++s) {
        took[s].push_back(take() - starts[s].back());
        sums[i] += took[s].back();
      }
    }
    kind.compute_error = error_of_median(std::move(compute_ends));
    kind.end = median(std::move(ends));
    kind.seconds_error = error_of_median(std::move(sums));
    for (std::size_t s = 0; s < segments; ++s) {
      kind.start.push_back(median(std::move(starts[s])));
      kind.seconds.push_back(median(std::move(took[s])));
    }
  }
  for (Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s) {
      const std::int64_t passed = each->end[s] - each->start[s];
      const auto pure = static_cast<std::int64_t>(1e9 * *next++);
      each->wait_for_peer[s] = std::clamp<std::int64_t>(passed - pure, 0, passed);
    }
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
