// Detects copies of the process. A child of fork() gets a fresh state from the handlers of
// pthread_atfork. A child of a raw clone() or of _Fork() runs no handler and still has the parent's
// state, device memory and connections, so all its calls are refused.
#pragma once

#include <atomic>

#include "hccl/base/status.h"

namespace hccl::acl {

namespace detail {
/// The byte is 0 in a copy that ran no handler.
[[gnu::visibility("hidden")]] extern std::atomic<const std::atomic<unsigned char>*> mark;
}  // namespace detail

/// Whether this process is a copy of a process that used the library, made without the handlers of
/// fork(). The call costs two loads.
inline bool copied() {
  return detail::mark.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) == 0;
}
/// Returns the failure of every call in such a copy.
[[gnu::cold]] Status copy_refused();

/// Called when the process makes its state: from now on its copies are detected.
void begin_use();
/// Called by the fork handler in a child: from now on the process has no state.
void end_use();

}  // namespace hccl::acl
