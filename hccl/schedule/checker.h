// Proves a schedule right without running it: every rank's steps are executed symbolically, with
// rendezvous sends, and every chunk carries the exact set of its contributions.
#pragma once

#include <functional>

#include "hccl/base/status.h"
#include "hccl/schedule/algorithm.h"

namespace hccl::schedule {

/// Success, or the error: "allreduce ring, 5 ranks: deadlock: rank 2 step 3 waits for …". Checks:
/// matching of sends and receives (chunks included), no deadlock when every send waits for its
/// receive, no read of unwritten data, no chunk folded twice, in-place safety, and the operation's
/// result.
Status check(Op op, int size, int root, int depth,
             const std::function<Schedule(const Shape&)>& build);

}  // namespace hccl::schedule
