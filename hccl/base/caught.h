// The status of a caught exception. Exceptions are caught at the C API and at the root of each
// thread.
#pragma once

#include "hccl/base/status.h"

namespace hccl {

/// Returns the status of the exception that is being handled. Never fails for lack of memory, so it
/// can always report that memory is exhausted.
Status caught() noexcept;

}  // namespace hccl
