// Parts that all tests of the root's verdicts use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hccl/control/verdicts.h"
#include "tests/control/status_words.h"

namespace hccl::control {

inline Uuid scope_of(std::uint64_t number) { return {static_cast<std::uint8_t>(number)}; }

/// A roster with one process for each rank, all on one host.
inline std::shared_ptr<const Roster> roster_of(std::uint32_t size) {
  Roster roster;
  roster.hosts.push_back({"here", "", "10.0.0.1"});
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    roster.nodes.push_back({0, 0, 100 + rank, 0, 0, {rank}});
    roster.node_of.push_back(rank);
  }
  return std::make_shared<const Roster>(std::move(roster));
}

inline Wait wait_of(const Uuid& scope, std::uint64_t number, const std::string& call,
                    RankSet waiting, RankSet awaited) {
  Wait wait{scope, number, {}, call, std::move(waiting), std::move(awaited)};
  std::ranges::copy(call.substr(call.size() - std::min<std::size_t>(call.size(), 16)),
                    wait.digest.begin());
  return wait;
}

inline std::vector<Verdict> list(const News& news) {
  std::vector<Verdict> all;
  for (const auto& [key, verdict] : news.verdicts) all.push_back(verdict);
  return all;
}

}  // namespace hccl::control
