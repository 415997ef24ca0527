#pragma once

#include <cstddef>

#include "hccl/base/status.h"

namespace hccl {

/// Cryptographically random bytes from the kernel. kSyscall: the kernel gives none.
Status random_bytes(void* out, std::size_t size);

}  // namespace hccl
