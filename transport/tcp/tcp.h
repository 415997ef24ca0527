// The tcp transport: sockets between all ranks, no threads.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks over TCP: listens on args.address, publishes the port with one
/// exchange, connects to all lower ranks and accepts all higher ones. Every connection is
/// authenticated with args.key. kTimeout names the ranks that did not connect before the deadline
/// (culprit: the first).
Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args);

}  // namespace hccl::transport
