// How the ranks of one host get a common segment: the lowest rank creates it and sends it to the
// others, together with the wake-up descriptors of all ranks, over an authenticated UNIX socket.
#pragma once

#include <memory>
#include <vector>

#include "hccl/base/status.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

/// Returns the segment of `members`: the ranks of args that share this host, ascending, with
/// args.rank. A rank's place in the segment is its place in `members`. `wake` is this rank's
/// wake-up descriptor, or the reason for which it has none. Calls args.exchange exactly kRounds
/// times on every path, unless the exchange itself fails. Either all members succeed, or all fail
/// with the reason of the first failure. With one member the segment is null.
Result<std::shared_ptr<Segment>> hand_over(const OpenArgs& args, const std::vector<int>& members,
                                           const Result<int>& wake);

inline constexpr int kRounds = 3;

}  // namespace hccl::transport::shm
