#include "hccl/select/message_costs.h"

#include <algorithm>
#include <string>

namespace hccl::select {
namespace {

struct StepTime {
  double first = 0;
  double more = 0;
};

// Straight lines between the points; the first point's time below it; beyond the last one, on at
// the pace of the last two.
StepTime step_time(const MessageCosts& costs, double bytes) {
  const auto& steps = costs.steps;
  const auto time = [](const MessageCosts::Step& at) {
    return StepTime{static_cast<double>(at.step_ns), static_cast<double>(at.more_ns)};
  };
  if (bytes <= static_cast<double>(steps.front().bytes)) return time(steps.front());
  if (steps.size() == 1) {
    // One point says nothing of the pace; that all of it is pace is the careful guess.
    const double times = bytes / std::max(1.0, static_cast<double>(steps.front().bytes));
    return {time(steps.front()).first * times, time(steps.front()).more * times};
  }
  std::size_t above = 1;
  while (above + 1 < steps.size() && static_cast<double>(steps[above].bytes) < bytes) ++above;
  const auto& low = steps[above - 1];
  const auto& high = steps[above];
  const double share = (bytes - static_cast<double>(low.bytes)) /
                       (static_cast<double>(high.bytes) - static_cast<double>(low.bytes));
  const StepTime a = time(low), b = time(high);
  return {a.first + share * (b.first - a.first), a.more + share * (b.more - a.more)};
}

double on_one_lane(const schedule::Cost& cost, double bytes, const MessageCosts& costs) {
  if (cost.steps == 0) return 0;
  const double messages = std::max(cost.steps, cost.messages);
  const StepTime time = step_time(costs, cost.bytes * bytes / messages);
  constexpr double kMiB = 1 << 20;
  return cost.steps * time.first + (messages - cost.steps) * time.more +
         cost.folded * bytes / kMiB * static_cast<double>(costs.fold_ns_per_mib);
}

}  // namespace

Status MessageCosts::check() const {
  const auto wrong = [](const std::string& what) {
    return Status(Code::kPara, "costs of messages: " + what);
  };
  if (steps.empty() || steps.size() > kMostSteps) {
    return wrong("1 to " + std::to_string(kMostSteps) + " steps are expected, not " +
                 std::to_string(steps.size()));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const std::string where = "step of " + std::to_string(step.bytes) + " bytes: ";
    if (step.bytes > std::uint64_t{1} << 40) return wrong(where + "more than 2^40 bytes");
    if (step.step_ns == 0 || step.step_ns > kMostNs || step.more_ns > kMostNs) {
      return wrong(where + "a time of 1 ns to an hour is expected");
    }
    if (i == 0) continue;
    if (step.bytes <= steps[i - 1].bytes) return wrong(where + "bytes must rise");
    if (step.step_ns < steps[i - 1].step_ns || step.more_ns < steps[i - 1].more_ns) {
      return wrong(where + "times must not fall");
    }
  }
  if (fold_ns_per_mib > kMostNs) return wrong("a fold of 1 MiB takes an hour at most");
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].lanes < 2 || lanes[i].lanes > kMostLanes ||
        (i > 0 && lanes[i].lanes <= lanes[i - 1].lanes)) {
      return wrong("lanes must rise from 2 to " + std::to_string(kMostLanes));
    }
    if (lanes[i].saved_percent < -100 || lanes[i].saved_percent > 90) {
      return wrong("lanes save -100 to 90 percent");
    }
  }
  return {};
}

double predict_ns(const schedule::Algorithm& algorithm, int size, std::uint64_t bytes, int depth,
                  int lanes, const MessageCosts& costs) {
  const schedule::Cost cost = algorithm.cost(size, depth);
  const double whole = on_one_lane(cost, static_cast<double>(bytes), costs);
  if (lanes <= 1) return whole;
  for (const MessageCosts::Lanes& known : costs.lanes) {
    if (known.lanes != lanes) continue;
    // What lanes save grows from nothing, so that a longer vector never takes less time.
    const std::uint64_t from = kSavingLaneBytes * static_cast<std::uint64_t>(lanes);
    const double start = on_one_lane(cost, static_cast<double>(from), costs);
    return whole - known.saved_percent / 100.0 * std::max(0.0, whole - start);
  }
  return whole;
}

}  // namespace hccl::select
