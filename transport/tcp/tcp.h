// The tcp transport. Two ranks get a connection when one sends the first message to the other.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks over TCP. The ranks exchange the addresses of their doors.
/// Connections are made later. Every connection is authenticated with args.key.
Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args);

}  // namespace hccl::transport
