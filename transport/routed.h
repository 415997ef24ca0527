// The transport "auto": shared memory between the ranks of one host, sockets between hosts.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens what args.hosts calls for: only shm if all ranks share a host, only tcp if no two do (the
/// mesh then says that name), otherwise both behind one mesh "auto". Where the ranks of a host
/// cannot share memory (other user, other mount namespace, no memory) all of that host use tcp, and
/// the lowest of them logs one warning with the reason.
Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args);

/// What open_routed() is made of, for tests.
struct RouteParts {
  OpenFunction shm;  ///< links the ranks of each host, like open_shm_on_host()
  OpenFunction tcp;
  std::function<void(std::string_view)> warn;  ///< gets the warning
};
Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args, const RouteParts& parts);

}  // namespace hccl::transport
