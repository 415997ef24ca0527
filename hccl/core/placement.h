// The hosts and cores on which a communicator's ranks run, and how the ranks wait there.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "hccl/base/waiter.h"
#include "hccl/join/world.h"

namespace hccl::core {

struct Placement {
  /// `world`: the hosts of all world ranks. `ranks`: world ranks, by rank of the communicator.
  /// `spin`: the user's setting.
  Placement(const std::vector<join::World::Host>& world, const std::vector<int>& ranks, int rank,
            std::optional<std::chrono::nanoseconds> spin);

  std::vector<int> hosts;  ///< by rank; numbered in order of appearance
  /// The number of hosts, if all hosts have equally many ranks and the ranks are numbered host by
  /// host. Otherwise the number of ranks, as in schedule::Shape::hosts.
  int even_hosts = 1;
  bool any_shared_cores = false;  ///< some machine has fewer cores than ranks
  bool crowded = false;           ///< more than four ranks share a core of this rank's machine
  WaitPolicy policy;              ///< for the thread that calls an operation
  WaitPolicy worker_policy;       ///< for the worker thread, while the caller computes
  /// The order that join::cores_in_turn() returns, if all ranks are on one machine and share bound
  /// cores. Otherwise empty.
  std::vector<int> order;
};

}  // namespace hccl::core
