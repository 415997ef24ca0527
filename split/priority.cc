#include "split/priority.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "split/planner_model.h"

namespace hccl::split {
namespace {

constexpr std::uint64_t kMostMessages = 100000;
// A delay up to this share of the iteration is accepted if it saves messages, because each message
// costs its ranks time that no cost of the network shows.
constexpr double kSlack = 0.01;

Status check_due(const PriorityProblem& problem) {
  if (problem.due.size() != problem.bytes.size())
    return Status(Code::kPara, std::to_string(problem.bytes.size()) + " gradient sizes, but " +
                                   std::to_string(problem.due.size()) + " due times");
  for (std::size_t i = 0; i < problem.due.size(); ++i) {
    if (!is_time(problem.due[i]))
      return Status(Code::kPara, "due[" + std::to_string(i) + "] is " +
                                     std::to_string(problem.due[i]) +
                                     ": it must be a time that is not negative");
    if (i > 0 && problem.due[i] > problem.due[i - 1])
      return Status(Code::kPara, "due[" + std::to_string(i) +
                                     "] is later than the one before it: forward needs the "
                                     "first gradients of backward last");
  }
  return {};
}

double lateness(const PriorityProblem& problem, std::span<const double> done) {
  double late = 0;
  for (std::size_t i = 0; i < done.size(); ++i) late = std::max(late, done[i] - problem.due[i]);
  return late;
}

PriorityPlan send(const PriorityProblem& problem, const AffineCost& cost, std::uint64_t chunk) {
  PriorityPlan plan;
  plan.chunk_bytes = chunk;
  plan.done.assign(problem.bytes.size(), 0);
  std::vector<std::uint32_t> order(problem.bytes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem.ready[a] < problem.ready[b];
  });
  // The gradients that are ready and not sent, by rising index, so the newest (the last in
  // backward's order) is at the end. Gradients usually become ready in this order.
  std::vector<Piece> waiting;
  std::size_t next = 0;
  double now = 0;
  for (;;) {
    for (; next < order.size() && (waiting.empty() || problem.ready[order[next]] <= now); ++next) {
      const std::uint32_t gradient = order[next];
      now = std::max(now, problem.ready[gradient]);
      plan.done[gradient] = problem.ready[gradient];
      if (problem.bytes[gradient] == 0) continue;
      const auto at = std::upper_bound(
          waiting.begin(), waiting.end(), gradient,
          [](std::uint32_t index, const Piece& piece) { return index < piece.gradient; });
      waiting.insert(at, {gradient, 0, problem.bytes[gradient]});
    }
    if (waiting.empty()) break;
    GradientMessage message;
    message.start = now;
    std::uint64_t room = chunk;
    while (room > 0 && !waiting.empty()) {
      Piece& newest = waiting.back();
      const std::uint64_t bytes = std::min(room, newest.bytes);
      newest.bytes -= bytes;
      message.pieces.push_back({newest.gradient, newest.bytes, bytes});
      room -= bytes;
      if (newest.bytes == 0) waiting.pop_back();
    }
    message.end = now = now + cost(chunk - room);
    for (const Piece& piece : message.pieces) plan.done[piece.gradient] = now;
    plan.messages.push_back(std::move(message));
  }
  plan.late = lateness(problem, plan.done);
  return plan;
}

}  // namespace

Result<PriorityPlan> plan_newest_first(const PriorityProblem& problem, const AffineCost& cost) {
  HCCL_RETURN_IF_ERROR(check(cost));
  HCCL_ASSIGN_OR_RETURN(const Model model, make_model({problem.bytes, problem.ready}));
  HCCL_RETURN_IF_ERROR(check_due(problem));
  const std::uint64_t total = std::max<std::uint64_t>(model.sum.back(), 1);
  const std::uint64_t least = total / kMostMessages + 1;
  if (problem.chunk_bytes != 0) {
    if (problem.chunk_bytes < least) {
      return Status(Code::kPara, "chunk_bytes is " + std::to_string(problem.chunk_bytes) +
                                     ": that makes more than " + std::to_string(kMostMessages) +
                                     " messages");
    }
    return send(problem, cost, problem.chunk_bytes);
  }
  // Tries smaller and smaller chunks while these may help. Smaller chunks do not help if a start
  // costs more than the bytes of a chunk.
  std::vector<PriorityPlan> plans = {send(problem, cost, total)};
  double best = plans.front().late;
  for (std::uint64_t chunk = total / 2; chunk >= std::max(least, total / 4096); chunk /= 2) {
    plans.push_back(send(problem, cost, chunk));
    best = std::min(best, plans.back().late);
    if (cost.start > cost.per_byte * static_cast<double>(chunk)) break;
  }
  const double enough = best + kSlack * (problem.due.front() + best);
  return *std::find_if(plans.begin(), plans.end(),
                       [enough](const PriorityPlan& plan) { return plan.late <= enough; });
}

Result<double> late_in_order(const PriorityProblem& problem,
                             std::span<const std::uint32_t> last_indices, const AffineCost& cost) {
  HCCL_RETURN_IF_ERROR(check_due(problem));
  HCCL_ASSIGN_OR_RETURN(const Prediction told,
                        predict({problem.bytes, problem.ready}, last_indices, cost));
  std::vector<double> done;
  for (std::size_t k = 0; k < last_indices.size(); ++k)
    done.resize(last_indices[k] + std::size_t{1}, told.segments[k].end);
  return lateness(problem, done);
}

}  // namespace hccl::split
