#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "work.h"

namespace hccl::pytorch {

/// The operations between c10d's startCoalescing and endCoalescing. They start at once, in the
/// order of the calls. Callers do not wait for single operations, so a rank may receive before it
/// sends.
class Coalescing {
 public:
  void start();
  bool started() const;
  /// Returns `work`. Between start() and end(), also adds `work` to the list, and returns no Work
  /// if `caller_waits` is set, because the caller would wait for this operation alone.
  WorkPtr add(WorkPtr work, bool caller_waits);
  /// Returns one Work for all operations, or none if there are no operations.
  WorkPtr end();

 private:
  mutable std::mutex mutex_;  // operations come from the autograd thread, too
  std::optional<std::vector<WorkPtr>> works_;
};

}  // namespace hccl::pytorch
