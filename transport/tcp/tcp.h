// The tcp transport. Two ranks get a socket with their first message.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks over TCP. The ranks exchange once the places of their doors.
/// Connections are made later, or now if args.all_links. Every connection is authenticated with
/// args.key. kTimeout, for all links: the text names the missing ranks.
Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args);

}  // namespace hccl::transport
