// The tcp transport: a socket between two ranks from their first message on.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks over TCP. The ranks tell each other in one exchange where their
/// doors are. Connections are made later, or now if args.all_links. Every connection is
/// authenticated with args.key. kTimeout names the ranks that lack, for all links.
Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args);

}  // namespace hccl::transport
