// What tells this host from others, and how much of it this process may use.
#pragma once

#include <string>

namespace hccl::core {

/// Equal in two processes that may share memory: the boot and the network namespace. A hint only;
/// that memory was really handed over decides. At most 128 bytes.
using HostIdentity = std::string;
HostIdentity host_identity();

/// Cores the calling thread may run on; at least 1.
int usable_cores();

}  // namespace hccl::core
