// Proves that a schedule is right without running it: executes the steps of all ranks symbolically,
// with rendezvous sends. Every symbolic chunk carries the exact set of its contributions.
#pragma once

#include <functional>

#include "hccl/base/status.h"
#include "hccl/schedule/algorithm.h"

namespace hccl::schedule {

/// Success, or the error: "allreduce ring, 5 ranks: deadlock: rank 2 step 3 waits for …". Checks
/// that sends and receives match (chunks included); that no deadlock occurs if every send waits for
/// its receive; that no unwritten data is read and no chunk folded twice; in-place safety; and the
/// result of the operation.
Status check(Op op, int size, int root, int depth,
             const std::function<Schedule(const Shape&)>& build);

}  // namespace hccl::schedule
