// Work that the engine advances until it is done: a lane of a schedule, a direct exchange, or a
// batch of sends and receives.
#pragma once

#include <set>

#include "hccl/base/status.h"

namespace hccl::exec {

/// Used by one thread at a time.
class Activity {
 public:
  Activity() = default;
  virtual ~Activity() = default;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  /// Makes progress without blocking. A failure is final, but requests may still be under way after
  /// it; Mesh::abort() ends these requests.
  virtual Status advance() = 0;
  virtual bool done() const = 0;
  /// Adds to `peers` the peers whose envelope has not arrived.
  virtual void late(std::set<int>& peers) const = 0;
};

}  // namespace hccl::exec
