// Proves that a schedule is right without running it: executes the steps of all ranks symbolically,
// with rendezvous sends. Every symbolic chunk carries the exact set of its contributions.
#pragma once

#include <functional>

#include "hccl/base/status.h"
#include "hccl/schedule/algorithm.h"

namespace hccl::schedule {

/// Returns success, or the error: "allreduce ring, 5 ranks: deadlock: rank 2 step 3 waits for …".
/// Checks that sends and receives match (chunks included); that no deadlock occurs if every send
/// waits for its receive; that no unwritten data is read; that no chunk is folded twice; that the
/// schedule is right in place, too; and that the operation's result is right.
Status check(Op op, int size, int root, int depth,
             const std::function<Schedule(const Shape&)>& build);

}  // namespace hccl::schedule
