#pragma once

#include <cstddef>

#include "hccl/base/status.h"

namespace hccl {

/// Cryptographically random bytes from the kernel. kSyscall: no such bytes; the process cannot go
/// on.
Status random_bytes(void* out, std::size_t size);

}  // namespace hccl
