// The names of waiter.h and doorbell.h from before there was a Waiter, for rooms that still use
// them. New code does not.
#pragma once

#include "hccl/base/doorbell.h"
#include "hccl/base/waiter.h"

namespace hccl {

using Bell = Doorbell;
using QuietBell = Doorbell;
using Limits = Waiter;

namespace detail {
inline void pause() { StdAtomics::pause(); }
template <class Ready>
bool at_once(Ready&& ready, const WaitPolicy& policy) {
  return soon(ready, policy);
}
}  // namespace detail

template <class Ready, class AnyBell>
Waited wait(Ready&& ready, Deadline deadline, const AbortFlag* abort, AnyBell& bell,
            const WaitPolicy& policy) {
  return Waiter{.deadline = deadline, .abort = abort, .policy = policy}.until(ready, bell);
}

}  // namespace hccl
