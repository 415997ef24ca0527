#include "hccl/core/tuning.h"

#include <algorithm>
#include <cmath>

namespace hccl::core {
namespace {

std::string counted(std::uint32_t number, const char* word) {
  return std::to_string(number) + " " + word + (number == 1 ? "" : "s");
}

double apart(std::uint32_t a, std::uint32_t b) {
  return std::abs(std::log2(std::max(1u, a)) - std::log2(std::max(1u, b)));
}

}  // namespace

std::string words(const TuningKey& key) {
  return key.transport + ", " + counted(key.hosts, "host") + " with " +
         counted(key.ranks_per_host, "rank") + (key.hosts == 1 ? "" : " each") +
         (key.shared_cores ? " that share cores" : "") + (key.cma ? ", the kernel may copy" : "") +
         ", " + key.cpu + ", hccl " + key.library;
}

const TuningEntry* Tuning::find(const TuningKey& key) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const TuningEntry& each) { return each.key == key; });
  return at == entries.end() ? nullptr : &*at;
}

const TuningEntry* Tuning::nearest(const TuningKey& key) const {
  const TuningEntry* best = nullptr;
  double least = 0;
  for (const TuningEntry& each : entries) {
    const TuningKey& its = each.key;
    if (!each.messages || its.library != key.library || its.cpu != key.cpu ||
        its.transport != key.transport) {
      continue;
    }
    // Another number of hosts changes more than another number of ranks.
    const double distance = 2 * apart(its.hosts, key.hosts) +
                            apart(its.ranks_per_host, key.ranks_per_host) +
                            (its.shared_cores == key.shared_cores ? 0 : 0.5);
    if (best == nullptr || distance < least) {
      best = &each;
      least = distance;
    }
  }
  return best;
}

void Tuning::put(TuningEntry entry) {
  std::erase_if(entries, [&](const TuningEntry& each) { return each.key == entry.key; });
  if (entries.size() >= kMostEntries) {
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMostEntries) + 1);
  }
  entries.push_back(std::move(entry));
}

}  // namespace hccl::core
