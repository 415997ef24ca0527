#include "hccl/select/local_selector.h"

#include <cmath>

#include "hccl/select/remote_selector.h"

namespace hccl::select {
namespace {

/// Measured costs are noisy. To replace the choice that the built-in costs give, an algorithm must
/// take at most this share of that choice's time.
constexpr double kWorthLeavingPreset = 0.7;

}  // namespace

LocalSelector::LocalSelector(local::Topology topology, LocalCosts costs, Wanted wanted)
    : topology_(topology),
      costs_(std::move(costs)),
      preset_(local_preset(topology, costs_.far())),
      wanted_(std::move(wanted)) {}

double LocalSelector::predict_ns(const local::Algorithm& algorithm, const local::Case& c) const {
  const Curve* const curve = costs_.find(algorithm.name, kind_of(c.op));
  return curve == nullptr ? 0 : curve->ns(c.bytes);
}

// Algorithms without known costs come last, in the order of the table.
LocalSelector::Best LocalSelector::best(const LocalCosts& costs, const local::Case& c,
                                        bool with_eager) const {
  Best best;
  for (const local::Algorithm& each : local::algorithms()) {
    if ((each.eager() && !with_eager) || !each.operations.contains(c.op)) continue;
    if (!each.refuse(c, topology_).empty()) continue;
    const Curve* const curve = costs.find(each.name, kind_of(c.op));
    const double ns = curve == nullptr ? HUGE_VAL : curve->ns(c.bytes);
    if (best.algorithm == nullptr || ns < best.ns) {
      best.next = std::exchange(best.algorithm, &each);
      best.next_ns = std::exchange(best.ns, ns);
    } else if (best.next == nullptr || ns < best.next_ns) {
      best.next = &each;
      best.next_ns = ns;
    }
  }
  return best;
}

LocalChoice LocalSelector::choose(const local::Case& c, bool with_eager) const {
  std::string wish;
  if (const std::string& name = wanted(c.op); !name.empty()) {
    const local::Algorithm* const found = local::find(c.op, name);
    const std::string why = found == nullptr ? "" : found->refuse(c, topology_);
    wish = "HCCL_ALGO asks for " + name;
    if (found != nullptr && why.empty() && (with_eager || !found->eager())) return {found, wish};
    wish += found == nullptr ? ", which " + std::string(hccl::to_string(c.op)) + " does not have; "
                             : ", but " + why + "; ";
  }
  Best chosen = best(costs_, c, with_eager);
  if (chosen.algorithm == nullptr) return {};
  const Best by_preset = best(preset_, c, with_eager);
  const Curve* const usual = costs_.find(by_preset.algorithm->name, kind_of(c.op));
  if (by_preset.algorithm != chosen.algorithm && usual != nullptr &&
      chosen.ns > kWorthLeavingPreset * usual->ns(c.bytes)) {
    chosen = {by_preset.algorithm, usual->ns(c.bytes), chosen.algorithm, chosen.ns};
  }
  LocalChoice choice{chosen.algorithm, std::move(wish)};
  choice.reason +=
      std::isinf(chosen.ns) ? "its cost is not known" : "predicted " + microseconds(chosen.ns);
  if (chosen.next == nullptr) return choice;
  choice.reason += ", next best " + std::string(chosen.next->name);
  if (!std::isinf(chosen.next_ns)) choice.reason += " " + microseconds(chosen.next_ns);
  return choice;
}

}  // namespace hccl::select
