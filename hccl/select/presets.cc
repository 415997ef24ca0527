#include "hccl/select/presets.h"

#include <cmath>

namespace hccl::select {

LocalCosts local_preset(const local::Topology& topology, bool far) {
  LocalCosts best;
  double least = HUGE_VAL;
  for (const CostEntry& each : presets().entries) {
    if (!each.local) continue;
    const double ranks = std::abs(std::log2(static_cast<double>(each.key.ranks_per_host)) -
                                  std::log2(static_cast<double>(topology.ranks)));
    const double distance = ranks + (each.key.shared_cores != topology.shared_cores ? 1e6 : 0) +
                            (each.local->far() != far ? 0.75 : 0);
    if (distance >= least) continue;
    least = distance;
    best = *each.local;
  }
  // Without a preset for far cores, only this value of the tuning differs from the preset for near
  // cores.
  constexpr std::size_t kStreamFrom = std::size_t{4} << 10;
  if (best.far() != far) best.tuning.stream_from = far ? kStreamFrom : local::Tuning{}.stream_from;
  return best;
}

const MessageCosts* message_preset(const CostKey& key) {
  CostKey any = key;
  any.library = any.cpu = "any";
  const CostEntry* const entry = presets().nearest(any);
  return entry == nullptr ? nullptr : &*entry->messages;
}

}  // namespace hccl::select
