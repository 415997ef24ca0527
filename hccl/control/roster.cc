#include "hccl/control/roster.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace hccl::control {
namespace {

std::optional<Roster::Node> get_node(ByteReader& in) {
  Roster::Node node{in.get<std::uint32_t>(),
                    in.get<std::uint32_t>(),
                    in.get<std::uint32_t>(),
                    in.get<std::uint16_t>(),
                    in.get<std::uint64_t>(),
                    {},
                    {}};
  const auto agents = in.get<std::uint8_t>();
  if (agents != 0) node.attempt = {in.get<std::uint32_t>(), in.get<std::uint32_t>()};
  if (agents != (node.attempt.agent != 0)) return std::nullopt;
  auto ranks = get_ranks(in);
  if (!ranks) return std::nullopt;
  node.ranks = std::move(*ranks);
  return node;
}

// Whether node 0 is the only node that is its own parent, and all other nodes are below node 0.
bool is_tree(const Roster& roster) {
  const auto& nodes = roster.nodes;
  const bool inside = std::ranges::all_of(nodes, [&](const auto& node) {
    return node.parent < nodes.size() && node.host < roster.hosts.size();
  });
  if (!inside || nodes.empty() || nodes.front().parent != 0) return false;
  const auto children = roster.children();
  std::vector<std::uint32_t> reached{0};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    reached.insert(reached.end(), children[reached[i]].begin(), children[reached[i]].end());
  }
  return reached.size() == nodes.size();
}

// Fills node_of if every rank from 0 to the highest occurs once.
void index_ranks(Roster& roster) {
  std::vector<std::uint32_t> node_of;
  std::size_t count = 0;
  for (std::uint32_t number = 0; number < roster.nodes.size(); ++number) {
    for (const std::uint32_t rank : roster.nodes[number].ranks.ranks()) {
      if (rank >= node_of.size()) node_of.resize(rank + 1, kNodesCap);
      if (node_of[rank] != kNodesCap) return;
      node_of[rank] = number;
      ++count;
    }
  }
  if (count == node_of.size()) roster.node_of = std::move(node_of);
}

}  // namespace

std::vector<std::vector<std::uint32_t>> Roster::children() const {
  std::vector<std::vector<std::uint32_t>> all(nodes.size());
  for (std::uint32_t number = 1; number < nodes.size(); ++number) {
    all[nodes[number].parent].push_back(number);
  }
  return all;
}

std::vector<std::uint32_t> Roster::ancestors(std::uint32_t node) const {
  std::vector<std::uint32_t> all;
  while (node != 0) all.push_back(node = nodes[node].parent);
  return all;
}

std::string Roster::name(std::uint32_t node) const {
  const Host& host = hosts[nodes[node].host];
  return (host.address.empty() ? host.machine : host.address) + " pid " +
         std::to_string(nodes[node].pid);
}

void put(ByteWriter& out, const Roster& roster) {
  out.put(static_cast<std::uint32_t>(roster.hosts.size()));
  for (const auto& host : roster.hosts) {
    out.put_text(host.machine).put_text(host.cores).put_text(host.address);
  }
  out.put(static_cast<std::uint32_t>(roster.nodes.size()));
  for (const auto& node : roster.nodes) {
    out.put(node.host).put(node.parent).put(node.pid).put(node.port).put(node.started);
    out.put(static_cast<std::uint8_t>(node.attempt.agent != 0));
    if (node.attempt.agent != 0) out.put(node.attempt.agent).put(node.attempt.number);
    put(out, node.ranks);
  }
}

std::optional<Roster> get_roster(ByteReader& in) {
  Roster roster;
  const auto hosts = in.get<std::uint32_t>();
  if (hosts > kNodesCap) return std::nullopt;
  for (std::uint32_t i = 0; i < hosts; ++i) {
    roster.hosts.push_back(
        {in.get_text(kMachineCap), in.get_text(kCoresCap), in.get_text(kAddressCap)});
    if (!in.ok()) return std::nullopt;
  }
  const auto nodes = in.get<std::uint32_t>();
  if (nodes > kNodesCap) return std::nullopt;
  std::size_t ranks = 0;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    auto node = get_node(in);
    if (!node) return std::nullopt;
    ranks += node->ranks.count();
    if (ranks > kRanksCap) return std::nullopt;
    roster.nodes.push_back(std::move(*node));
  }
  if (!is_tree(roster)) return std::nullopt;
  index_ranks(roster);
  return roster;
}

RosterDraft::RosterDraft(Roster own) : roster_(std::move(own)) {
  const Roster::Node& node = roster_.nodes.front();
  ranks_ = node.ranks;
  hosts_[roster_.hosts.front().machine] = 0;
  nodes_[{0, node.pid, node.port}] = 0;
}

std::uint32_t RosterDraft::host_of(const Roster::Host& host) {
  const auto number = static_cast<std::uint32_t>(roster_.hosts.size());
  const auto [at, added] = hosts_.try_emplace(host.machine, number);
  if (added) roster_.hosts.push_back(host);
  std::string& cores = roster_.hosts[at->second].cores;
  cores.resize(std::max(cores.size(), host.cores.size()));
  for (std::size_t i = 0; i < host.cores.size(); ++i) {
    cores[i] = static_cast<char>(cores[i] | host.cores[i]);
  }
  return at->second;
}

Status RosterDraft::add(const Roster& sub, std::vector<std::uint32_t>* grown) {
  if (roster_.nodes.size() + sub.nodes.size() > kNodesCap) {
    return {Code::kUnavail, "more than " + std::to_string(kNodesCap) + " processes join"};
  }
  std::vector<std::uint32_t> hosts, numbers;
  std::vector<bool> is_new;
  for (const auto& host : sub.hosts) hosts.push_back(host_of(host));
  for (const auto& each : sub.nodes) {
    Roster::Node node = each;
    node.host = hosts[each.host];
    const auto number = static_cast<std::uint32_t>(roster_.nodes.size());
    const auto [at, added] = nodes_.try_emplace({node.host, node.pid, node.port}, number);
    numbers.push_back(at->second);
    is_new.push_back(added);
    ranks_ |= node.ranks;
    if (added) {
      roster_.nodes.push_back(std::move(node));
      continue;
    }
    Roster::Node& known = roster_.nodes[at->second];
    if ((node.ranks - known.ranks).empty()) continue;
    known.ranks |= node.ranks;
    known.attempt = node.attempt;
    if (grown != nullptr) grown->push_back(at->second);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (is_new[i]) roster_.nodes[numbers[i]].parent = i == 0 ? 0 : numbers[sub.nodes[i].parent];
  }
  return {};
}

Result<Roster> RosterDraft::finished(std::uint32_t size, const RankSet& refused) const {
  const RankSet absent = RankSet::range(0, size) - (ranks_ - refused);
  if (!absent.empty() || ranks_.count() != size) {
    return Status(Code::kTimeout, "EI0015: " + std::to_string(absent.count()) + " of " +
                                      std::to_string(size) +
                                      " ranks did not join; absent: " + absent.text());
  }
  std::vector<std::uint32_t> order(roster_.nodes.size()), number(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin() + 1, order.end(), [this](std::uint32_t a, std::uint32_t b) {
    const auto key = [this](std::uint32_t node) {
      const RankSet& ranks = roster_.nodes[node].ranks;
      return ranks.empty() ? std::numeric_limits<std::uint32_t>::max() : ranks.lowest();
    };
    return key(a) < key(b);
  });
  for (std::uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
  Roster roster{roster_.hosts, {}, {}};
  for (const std::uint32_t old : order) {
    roster.nodes.push_back(roster_.nodes[old]);
    roster.nodes.back().parent = number[roster.nodes.back().parent];
  }
  index_ranks(roster);
  return roster;
}

}  // namespace hccl::control
