// Gives the ranks of one host a common segment. The lowest rank creates the segment. It sends the
// segment and the wake-up descriptors of all ranks to one rank of each process, over an
// authenticated UNIX socket. The ranks of a process share the mapping and these descriptors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

struct HandedOver {
  std::shared_ptr<Segment> segment;  ///< null with one member
  /// The reason why the members do not share their device memory, the same text on all members;
  /// empty if they share it.
  std::string apart;
};

/// Does the steps that may fail on one rank alone. Returns the reason why this rank cannot share
/// device memory, or an empty text. The segment is null if this rank is the only member.
using Prepare = std::function<Result<std::string>(const Segment*)>;

/// Returns the segment that `members` share. `members` lists the ranks on this host, args.rank
/// included, in ascending order; a rank has the same index in the segment as in the list. `wake` is
/// this rank's wake-up descriptor, or the reason why it has none. Calls args.exchange exactly
/// kRounds times on every path, unless an exchange fails, and calls `prepare` before the last
/// exchange. Either all members succeed, or all fail with the reason of one failure.
Result<HandedOver> hand_over(const OpenArgs& args, const std::vector<int>& members,
                             const Result<int>& wake, const Prepare& prepare);

inline constexpr int kRounds = 3;

}  // namespace hccl::transport::shm
