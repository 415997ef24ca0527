#include "hccl/control/rank_set.h"

#include <algorithm>
#include <utility>

namespace hccl::control {

RankSet::RankSet(std::vector<std::uint32_t> ranks) {
  std::ranges::sort(ranks);
  for (const std::uint32_t rank : ranks) {
    if (!edges_.empty() && rank < edges_.back()) continue;  // the rank occurred before
    if (edges_.empty() || rank != edges_.back()) edges_.insert(edges_.end(), {rank, rank});
    edges_.back() = rank + 1;
  }
}

RankSet RankSet::range(std::uint32_t first, std::uint32_t end) {
  RankSet set;
  if (first < end) set.edges_ = {first, end};
  return set;
}

std::size_t RankSet::count() const {
  std::size_t number = 0;
  for (std::size_t i = 0; i < edges_.size(); i += 2) number += edges_[i + 1] - edges_[i];
  return number;
}

bool RankSet::contains(std::uint32_t rank) const {
  return (std::ranges::upper_bound(edges_, rank) - edges_.begin()) % 2 == 1;
}

std::vector<std::uint32_t> RankSet::ranks() const {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < edges_.size(); i += 2) {
    for (std::uint32_t rank = edges_[i]; rank < edges_[i + 1]; ++rank) all.push_back(rank);
  }
  return all;
}

std::string RankSet::text() const {
  constexpr std::size_t kRangesInText = 32;
  std::string words;
  for (std::size_t i = 0; i < edges_.size(); i += 2) {
    if (i == 2 * kRangesInText) return words + ", … (" + std::to_string(count()) + " in all)";
    const std::uint32_t last = edges_[i + 1] - 1;
    words += (i == 0 ? "" : ", ") + std::to_string(edges_[i]);
    if (last != edges_[i]) words += "-" + std::to_string(last);
  }
  return words;
}

// Passes over the edges of both sets in ascending order. keep(in_a, in_b) decides whether a rank is
// in the result; keep(false, false) must be false.
template <class Keep>
RankSet RankSet::merge(const RankSet& a, const RankSet& b, Keep keep) {
  RankSet result;
  std::size_t i = 0, j = 0;
  while (i < a.edges_.size() || j < b.edges_.size()) {
    const bool a_next = j == b.edges_.size() || (i < a.edges_.size() && a.edges_[i] <= b.edges_[j]);
    const std::uint32_t edge = a_next ? a.edges_[i] : b.edges_[j];
    if (i < a.edges_.size() && a.edges_[i] == edge) ++i;
    if (j < b.edges_.size() && b.edges_[j] == edge) ++j;
    const bool inside = result.edges_.size() % 2 == 1;
    if (keep(i % 2 == 1, j % 2 == 1) != inside) result.edges_.push_back(edge);
  }
  return result;
}

RankSet operator|(const RankSet& a, const RankSet& b) {
  return RankSet::merge(a, b, [](bool in_a, bool in_b) { return in_a || in_b; });
}
RankSet operator&(const RankSet& a, const RankSet& b) {
  return RankSet::merge(a, b, [](bool in_a, bool in_b) { return in_a && in_b; });
}
RankSet operator-(const RankSet& a, const RankSet& b) {
  return RankSet::merge(a, b, [](bool in_a, bool in_b) { return in_a && !in_b; });
}

void put(ByteWriter& out, const RankSet& set) {
  out.put(static_cast<std::uint32_t>(set.edges_.size()));
  for (const std::uint32_t edge : set.edges_) out.put(edge);
}

std::optional<RankSet> get_ranks(ByteReader& in, std::uint32_t end) {
  const auto edges = in.get<std::uint32_t>();
  if (edges % 2 != 0) return std::nullopt;
  RankSet set;
  for (std::uint32_t i = 0; i < edges; ++i) {
    const auto edge = in.get<std::uint32_t>();
    const bool ascends = set.edges_.empty() || edge > set.edges_.back();
    if (!in.ok() || !ascends || edge > end) return std::nullopt;
    set.edges_.push_back(edge);
  }
  return in.ok() ? std::optional(std::move(set)) : std::nullopt;
}

}  // namespace hccl::control
