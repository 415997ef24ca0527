// How the ranks of one host come to share a segment: the lowest one creates it and hands it to the
// others, together with everybody's wake-up descriptor, over an authenticated UNIX socket.
#pragma once

#include <memory>
#include <vector>

#include "hccl/base/status.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

/// Gives the segment of `members` (ranks of args that share this host, ascending, args.rank among
/// them); a rank's place in the segment is its place in `members`. `wake` is this rank's wake-up
/// descriptor, or why there is none. Calls args.exchange exactly kRounds times on every path,
/// unless the exchange itself fails. Either all members succeed, or all fail with the reason of the
/// first that did. `members` of one rank gives a null segment.
Result<std::shared_ptr<Segment>> hand_over(const OpenArgs& args, const std::vector<int>& members,
                                           const Result<int>& wake);

inline constexpr int kRounds = 3;

}  // namespace hccl::transport::shm
