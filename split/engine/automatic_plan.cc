#include "split/engine/automatic_plan.h"

#include <numeric>
#include <utility>

#include "split/engine/agreement.h"
#include "split/engine/window.h"

namespace hccl::split {
namespace {

// One of this many iterations runs without overlap, to measure compute alone.
constexpr std::uint64_t kAloneEvery = 200;

}  // namespace

Result<std::unique_ptr<AutomaticPlan>> AutomaticPlan::create(
    std::shared_ptr<core::Communicator> communicator, std::vector<std::uint64_t> bytes,
    const Segments& first, bool parallel, bool measure_only) {
  HCCL_ASSIGN_OR_RETURN(
      const auto samples,
      cost_samples(*communicator, std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})));
  HCCL_ASSIGN_OR_RETURN(CostModel model, CostModel::create(samples));
  communicator->membership().log->info(
      "gradient plan: an allreduce costs {:.1f} us and 1 s for {:.3f} GB (line is {:.0f} % off)",
      1e6 * model.affine().start, 1e-9 / model.affine().per_byte, 100 * model.misfit());
  std::unique_ptr<AutomaticPlan> made(new AutomaticPlan(std::move(communicator), bytes.size()));
  if (made->communicator_->rank() == 0)
    made->tuner_ =
        std::make_unique<Tuner>(std::move(bytes), first, std::move(model), parallel, measure_only);
  return made;
}

bool AutomaticPlan::overlaps(std::uint64_t iteration) const {
  return overlap_ && (alternate_ ? iteration % 2 != 0 : iteration % kAloneEvery != 0);
}

Result<Decision> AutomaticPlan::end_window(Times& now, std::deque<Times>& past) {
  const Iterations iterations = iterations_of(now, past, begin_);
  const std::size_t segments = now.plan->last_indices.size();
  std::vector<double> message = message_of(iterations, gradients_, segments);
  HCCL_RETURN_IF_ERROR(minimum(*communicator_, message));
  Window window = window_of(message, iterations, gradients_, segments);
  window.last_iteration = now.number;
  Decision decision;
  if (tuner_) decision = tuner_->observe(window);
  HCCL_RETURN_IF_ERROR(broadcast_decision(*communicator_, decision, gradients_));
  log(decision, now.number);
  overlap_ = decision.overlap;
  alternate_ = decision.alternate;
  next_window_ = decision.next_window;
  if (decision.changed) begin_ = now.number;
  return decision;
}

void AutomaticPlan::log(const Decision& decision, std::uint64_t iteration) const {
  const auto& log = communicator_->membership().log;
  if (decision.changed) {
    log->info("gradient plan {} from iteration {} on: {}{}", decision.version, iteration + 1,
              segments_text(decision.last_indices), decision.overlap ? "" : ", after backward");
  }
  if (tuner_ && !decision.why.empty()) log->info("gradient plan: {}", decision.why);
}

}  // namespace hccl::split
