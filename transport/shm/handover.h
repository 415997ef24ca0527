// How the ranks of one host get a common segment: the lowest rank creates it and sends it, together
// with the wake-up descriptors of all ranks, to one rank of each process over an authenticated UNIX
// socket. The ranks of a process share the mapping and these descriptors.
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
  /// Why the members do not share their device memory; empty if they do. The same on all of them.
  std::string apart;
};

/// Prepares this rank alone. Gives the reason for which this rank cannot share device memory, or no
/// text. Null segment: this rank is the only one.
using Prepare = std::function<Result<std::string>(const Segment*)>;

/// Returns the segment of `members`: the ranks of args that share this host, ascending, with
/// args.rank. A rank's place in the segment is its place in `members`. `wake` is this rank's
/// wake-up descriptor, or the reason for which it has none. Calls args.exchange exactly kRounds
/// times on every path, unless the exchange itself fails, and `prepare` before the last time: steps
/// that may fail on one rank alone belong there. Either all members succeed, or all fail with the
/// reason of one failure.
Result<HandedOver> hand_over(const OpenArgs& args, const std::vector<int>& members,
                             const Result<int>& wake, const Prepare& prepare);

inline constexpr int kRounds = 3;

}  // namespace hccl::transport::shm
