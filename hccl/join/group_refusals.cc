#include "hccl/join/group_refusals.h"

#include <algorithm>

namespace hccl::join {

void GroupRefusals::refused(std::uint32_t rank, std::string text, Time now) {
  Refusal& refusal = refusals_[rank];
  ++refusal.number;
  refusal.text = std::move(text);
  refusal.at = now;
}

std::int64_t GroupRefusals::number(std::uint32_t rank) const {
  const auto at = refusals_.find(rank);
  return at == refusals_.end() ? 0 : at->second.number;
}

std::int64_t GroupRefusals::excess(std::uint32_t first, std::uint32_t second) const {
  const auto at = past_.find(std::minmax(first, second));
  const std::int64_t past = at == past_.end() ? 0 : at->second;
  return number(first) - number(second) - (first < second ? past : -past);
}

void GroupRefusals::forgive(std::uint32_t first, std::uint32_t second, std::int64_t excess) {
  if (excess == 0) return;
  const auto at = past_.try_emplace(std::minmax(first, second)).first;
  at->second += first < second ? excess : -excess;
  if (at->second == 0) past_.erase(at);
}

void GroupRefusals::met(const Ranks& ranks) {
  for (const std::uint32_t one : ranks) {
    if (refusals_.count(one) == 0) continue;
    for (const std::uint32_t other : ranks) forgive(one, other, excess(one, other));
  }
}

void GroupRefusals::told(const Ranks& ranks, std::uint32_t rank) {
  for (const std::uint32_t each : ranks) {
    if (excess(rank, each) > 0) forgive(rank, each, 1);
  }
}

std::optional<GroupRefusals::Found> GroupRefusals::find(const Ranks& present, const Ranks& absent,
                                                        Time until) const {
  for (const std::uint32_t rank : absent) {
    const auto at = refusals_.find(rank);
    if (at == refusals_.end() || at->second.at > until) continue;
    for (const std::uint32_t witness : present) {
      if (excess(rank, witness) > 0) return Found{witness, rank, at->second.text};
    }
  }
  return std::nullopt;
}

}  // namespace hccl::join
