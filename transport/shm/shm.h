// The shm transport: rings in shared memory between the ranks of one host.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks on one host. Fails with kNotSupport if args.hosts names several
/// hosts. Ranks may be processes, threads of one process, or a mix. Leaves nothing in the file
/// system, even if a rank dies later. Either all ranks succeed or all fail.
Result<std::unique_ptr<Mesh>> open_shm(const OpenArgs& args);

/// Opens a shm mesh for the ranks of each host separately: a rank gets links to the ranks with its
/// host number. Requests to other ranks fail with kNotSupport. All ranks of all hosts must call
/// this; the ranks of one host succeed or fail together. A rank alone on its host gets a mesh with
/// only itself.
Result<std::unique_ptr<Mesh>> open_shm_on_host(const OpenArgs& args);

}  // namespace hccl::transport
