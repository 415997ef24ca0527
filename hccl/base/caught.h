// Where exceptions end: at the C API and at the root of each thread.
#pragma once

#include "hccl/base/status.h"

namespace hccl {

/// The exception that is being handled. Needs no memory to say that there is none.
Status caught() noexcept;

}  // namespace hccl
