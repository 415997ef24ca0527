#include "hccl/core/placement.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "hccl/join/host.h"

namespace hccl::core {
namespace {

constexpr std::chrono::microseconds kSpin{50};
constexpr std::size_t kCrowd = 4;  // ranks on a core

std::vector<int> number_hosts(const std::vector<join::World::Host>& world,
                              const std::vector<int>& ranks) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const int rank : ranks) {
    const auto& host = world[static_cast<std::size_t>(rank)].machine;
    hosts.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

int count_even_hosts(const std::vector<int>& hosts) {
  const auto local = static_cast<std::size_t>(std::count(hosts.begin(), hosts.end(), 0));
  const auto each = static_cast<int>(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != static_cast<int>(rank / local)) return each;
  }
  return hosts.size() % local == 0 ? static_cast<int>(hosts.size() / local) : each;
}

}  // namespace

Placement::Placement(const std::vector<join::World::Host>& world, const std::vector<int>& ranks,
                     int rank, std::optional<std::chrono::nanoseconds> spin)
    : hosts(number_hosts(world, ranks)), even_hosts(count_even_hosts(hosts)) {
  const auto host = [&](int world_rank) -> const join::World::Host& {
    return world[static_cast<std::size_t>(world_rank)];
  };
  // Containers on one machine are separate hosts but share its cores, so the ranks of all its
  // containers count. All ranks of a machine get the same numbers.
  std::map<std::string_view, std::vector<std::string>> machines;
  for (const int each : ranks) {
    machines[join::machine_of(host(each).machine)].push_back(host(each).cores);
  }
  for (const auto& [other, of_it] : machines) {
    if (of_it.size() > static_cast<std::size_t>(join::count_cores(of_it))) any_shared_cores = true;
  }
  const auto& masks =
      machines[join::machine_of(host(ranks[static_cast<std::size_t>(rank)]).machine)];
  const auto cores = static_cast<std::size_t>(join::count_cores(masks));
  policy.shared_cores = masks.size() > cores;
  crowded = masks.size() > kCrowd * cores;
  if (policy.shared_cores && masks.size() == ranks.size()) order = join::cores_in_turn(masks);
  policy.spin = spin.value_or(kSpin);
  // A worker thread spins only if every worker and every caller has a core. Otherwise a spinning
  // worker would take the core from a caller that computes.
  worker_policy = policy;
  if (!spin && 2 * masks.size() > cores) worker_policy.spin = std::chrono::nanoseconds(0);
}

}  // namespace hccl::core
