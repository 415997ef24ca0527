// The shm transport: rings in shared memory between the ranks of one host.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace hccl::transport {

/// Opens a mesh of args.size ranks, which must all be on one host (args.hosts; empty: they are);
/// else kNotSupport. They may be processes, threads of one process, or a mix. Leaves nothing in the
/// file system, even if a rank dies later. Either all ranks succeed or all fail.
Result<std::unique_ptr<Mesh>> open_shm(const OpenArgs& args);

/// The same for the ranks of each host separately: of args.size ranks, those with this rank's host
/// number get links. Requests to the others fail with kNotSupport. All ranks of all hosts must call
/// it; the ranks of one host succeed or fail together. A rank alone on its host gets a mesh with
/// only itself.
Result<std::unique_ptr<Mesh>> open_shm_on_host(const OpenArgs& args);

}  // namespace hccl::transport
