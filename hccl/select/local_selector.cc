#include "hccl/select/local_selector.h"

#include <algorithm>
#include <cmath>

#include "hccl/select/remote_selector.h"

namespace hccl::select {
namespace {

/// Measured costs are noisy: the choice by built-in ones is left for one that is this much better.
constexpr double kWorthLeavingPreset = 0.7;
/// An eager algorithm may take so much longer than the best for the memory at hand, of which the
/// ranks know nothing when they announce it.
constexpr double kAboutBest = 1.1;

local::Case with_memory(local::Case c, bool reachable) {
  c.inputs_reachable = c.outputs_reachable = reachable;
  return c;
}

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

// Of those that are eager, or are not. What no costs are known of comes last, in the table's order.
LocalSelector::Best LocalSelector::best(const LocalCosts& costs, const local::Case& c,
                                        bool eager) const {
  Best best;
  for (const local::Algorithm& each : local::algorithms()) {
    if (each.eager != eager || !each.operations.contains(c.op)) continue;
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

// The worse of both kinds of memory.
double LocalSelector::eager_over_rendezvous(const LocalCosts& costs, const local::Case& c,
                                            const Best& eager) const {
  if (std::isinf(eager.ns)) return HUGE_VAL;
  double worst = 0;
  for (const bool reachable : {false, true}) {
    const Best other = best(costs, with_memory(c, reachable), false);
    if (other.algorithm != nullptr) worst = std::max(worst, eager.ns / other.ns);
  }
  return worst;
}

LocalChoice LocalSelector::eager(Op op, DataType type, std::uint64_t bytes) const {
  const local::Case c{op, type, bytes, true, true};
  std::string wish;
  if (const std::string& name = wanted(op); !name.empty()) {
    const local::Algorithm* const found = local::find(op, name);
    const auto refusal = [&](bool reachable) {
      return found->refuse(with_memory(c, reachable), topology_);
    };
    wish = "HCCL_ALGO asks for " + name;
    if (found == nullptr) {
      wish += ", which " + std::string(hccl::words(op)) + " does not have; ";
    } else if (const std::string why = refusal(false); why.empty() || refusal(true).empty()) {
      if (found->eager) return {found, wish};
      return {};
    } else {
      wish += ", but " + why + "; ";
    }
  }
  const Best by_preset = best(preset_, c, true);
  if (by_preset.algorithm == nullptr) return {};
  const bool usual = eager_over_rendezvous(preset_, c, by_preset) <= kAboutBest;
  Best chosen = best(costs_, c, true);
  const Curve* const measured = costs_.find(by_preset.algorithm->name, kind_of(op));
  if (measured != nullptr && chosen.ns > kWorthLeavingPreset * measured->ns(bytes)) {
    chosen.algorithm = by_preset.algorithm;
    chosen.ns = measured->ns(bytes);
  }
  const double ratio = eager_over_rendezvous(costs_, c, chosen);
  const bool takes = ratio <= kAboutBest * (usual ? 1 / kWorthLeavingPreset : kWorthLeavingPreset);
  if (!takes) return {};
  return {chosen.algorithm,
          wish + "predicted " + microseconds(chosen.ns) + " whatever the memory is"};
}

LocalChoice LocalSelector::rendezvous(const local::Case& c) const {
  std::string wish;
  if (const std::string& name = wanted(c.op); !name.empty()) {
    const local::Algorithm* const found = local::find(c.op, name);
    const std::string why = found == nullptr ? "" : found->refuse(c, topology_);
    wish = "HCCL_ALGO asks for " + name;
    if (found != nullptr && why.empty() && !found->eager) return {found, wish};
    wish += found == nullptr ? ", which " + std::string(hccl::words(c.op)) + " does not have; "
                             : ", but " + why + "; ";
  }
  Best chosen = best(costs_, c, false);
  if (chosen.algorithm == nullptr) return {};
  const Best by_preset = best(preset_, c, false);
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

LocalChoice LocalSelector::choose(const local::Case& c) const {
  LocalChoice choice = eager(c.op, c.type, c.bytes);
  return choice.algorithm != nullptr ? choice : rendezvous(c);
}

}  // namespace hccl::select
