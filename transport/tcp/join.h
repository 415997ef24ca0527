// Joining: from a listener and a list of endpoints to one authenticated connection per peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "hccl/base/tls.h"
#include "transport/tcp/connection.h"

namespace hccl::transport::tcp {

struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

struct JoinArgs {
  int rank = 0;
  std::vector<Endpoint> ranks;  ///< where each rank listens
  Key key{};
  Deadline deadline = Deadline::never();
  const AbortFlag* abort = nullptr;
  std::shared_ptr<const TlsContext> tls;  ///< null: connections are not encrypted
};

/// Connects to the lower ranks and accepts the higher ones, all at once, without blocking on any of
/// them. A connection counts when both ends have proved that they hold the key and the hello names
/// a rank that is awaited; anything else is dropped, and a dropped connection of ours is tried
/// again. Strangers only cost their descriptor, for five seconds at most. Gives a connection per
/// rank (none at `rank`), or kTimeout naming the ranks that are missing. `sleeper` is only used for
/// the duration of the call.
Result<std::vector<Connection>> join(const JoinArgs& args, Listener listener,
                                     EpollSleeper& sleeper);

}  // namespace hccl::transport::tcp
