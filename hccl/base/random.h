#pragma once

#include <cstddef>

#include "hccl/base/status.h"

namespace hccl {

/// Cryptographically random bytes, of the kernel. kSyscall on failure; without such bytes the
/// process cannot go on.
Status random_bytes(void* out, std::size_t size);

}  // namespace hccl
