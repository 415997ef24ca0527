// The status of a caught exception. Exceptions are caught at the C API and at the root of each
// thread.
#pragma once

#include "hccl/base/status.h"

namespace hccl {

/// Returns the status of the exception that is being handled. Never fails for lack of memory, so it
/// can always report that memory is exhausted.
Status caught() noexcept;

/// Calls `f`, which returns a Status or a Result. If `f` throws, returns the exception's status.
template <class F>
auto guarded(F&& f) noexcept -> decltype(f()) {
  try {
    return f();
  } catch (...) {
    return caught();
  }
}

}  // namespace hccl
