#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "work.h"

namespace hccl::pytorch {

/// The operations between c10d's startCoalescing and endCoalescing. They start at once, in the
/// order of the calls, but nobody waits for one of them alone: so a rank may receive before it
/// sends.
class Coalescing {
 public:
  void start();
  bool started() const;
  /// Returns the Work for the operation's caller. Between start() and end(), adds `work` to the
  /// list, and returns none if `caller_waits`: the caller would wait for one operation alone.
  WorkPtr add(WorkPtr work, bool caller_waits);
  /// One Work for all of them; none if there are none.
  WorkPtr end();

 private:
  mutable std::mutex mutex_;  // operations come from the autograd thread, too
  std::optional<std::vector<WorkPtr>> works_;
};

}  // namespace hccl::pytorch
