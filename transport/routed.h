// The transport "auto": shared memory between the ranks of one host, sockets between hosts.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens the mesh for args.hosts. If all ranks share a host, returns the mesh "shm"; if no two
/// ranks share a host, the mesh "tcp". Otherwise returns a mesh "auto" that uses both. If the ranks
/// of a host cannot share memory (other user, other mount namespace, no memory), all ranks of that
/// host use tcp, and the lowest of them logs one warning with the reason.
Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args);

/// The functions that open_routed() calls. Tests replace them.
struct RouteParts {
  OpenFunction shm;  ///< links the ranks of each host, like open_shm_on_host()
  OpenFunction tcp;
  std::function<void(std::string_view)> warn;  ///< gets the warning
};
Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args, const RouteParts& parts);

}  // namespace hccl::transport
