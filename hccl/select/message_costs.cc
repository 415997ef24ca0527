#include "hccl/select/message_costs.h"

#include <algorithm>
#include <string>

#include "hccl/select/points.h"

namespace hccl::select {

Status MessageCosts::check() const {
  std::string wrong = fault(steps, &Step::step_ns, &Step::more_ns);
  if (wrong.empty() && fold_ns_per_mib > kMostNs) {
    wrong = "a fold of 1 MiB may take at most an hour";
  }
  return wrong.empty() ? Status() : Status(Code::kPara, "costs of messages: " + wrong);
}

double predict_ns(const schedule::Algorithm& algorithm, int size, std::uint64_t bytes, int depth,
                  const MessageCosts& costs) {
  using Step = MessageCosts::Step;
  const schedule::Cost cost = algorithm.cost(size, depth);
  if (cost.steps == 0) return 0;
  const auto vector = static_cast<double>(bytes);
  const double messages = std::max(cost.steps, cost.messages);
  const double length = cost.bytes * vector / messages;
  constexpr double kMiB = 1 << 20;
  return cost.steps * time_at(costs.steps, length, &Step::step_ns) +
         (messages - cost.steps) * time_at(costs.steps, length, &Step::more_ns) +
         cost.folded * vector / kMiB * static_cast<double>(costs.fold_ns_per_mib);
}

}  // namespace hccl::select
