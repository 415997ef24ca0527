// Where the ranks of a communicator run, and how that lets them wait.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "hccl/base/waiter.h"
#include "hccl/join/wire.h"

namespace hccl::core {

struct Placement {
  /// `members`: of the world. `ranks`: world ranks, by rank of the communicator. `spin`: what the
  /// user set.
  Placement(const std::vector<join::wire::Member>& members, const std::vector<int>& ranks, int rank,
            std::optional<std::chrono::nanoseconds> spin);

  std::vector<int> hosts;  ///< by rank; numbered in order of appearance
  /// The number of hosts if all have equally many ranks, numbered host by host. Else the number of
  /// ranks, as schedule::Shape::hosts has it.
  int even_hosts = 1;
  bool any_shared_cores = false;  ///< some machine has fewer cores than ranks
  WaitPolicy policy;              ///< of the thread that calls an operation
  WaitPolicy worker_policy;       ///< of the worker, beside which the caller computes
  /// Of ranks that are all on one machine and share bound cores, as join::cores_in_turn(); else
  /// empty.
  std::vector<int> order;
};

}  // namespace hccl::core
