// Joining: makes one authenticated connection a peer from a listener and a list of endpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/fd.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "hccl/base/tls.h"
#include "transport/tcp/connection.h"

namespace hccl::transport::tcp {

/// Holds this many descriptors, until they are needed. kSyscall, with the limit, if fewer are free.
Result<std::vector<Fd>> hold_descriptors(int number);

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
/// an awaited rank. Other connections are dropped; a dropped connection that this rank made is
/// tried again. A stranger costs only its descriptor, for five seconds at most. Returns a
/// connection a rank (none at `rank`), or kTimeout, which names the absent ranks. `sleeper` is used
/// only during the call.
Result<std::vector<Connection>> join(const JoinArgs& args, Listener listener,
                                     EpollSleeper& sleeper);

}  // namespace hccl::transport::tcp
