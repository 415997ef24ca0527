// Names from before there was a Waiter, for rooms that still use them. New code does not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hccl/base/wait.h"

namespace hccl {

namespace exec::host {
struct Limits {
  Deadline deadline = Deadline::never();
  const AbortFlag* abort = nullptr;
  WaitPolicy policy;
  std::function<void(const std::string& what, const std::vector<int>& awaited)> stalled;
};
}  // namespace exec::host

template <class Ready, class What, class Awaited, class AnyBell>
Status await(Ready&& ready, What&& what, Awaited&& awaited, const exec::host::Limits& limits,
             AnyBell& bell) {
  Waiter waiter{.deadline = limits.deadline, .abort = limits.abort, .policy = limits.policy};
  if (limits.stalled) {
    waiter.stalled = [&](const Pending& pending) { limits.stalled(pending.call, pending.late); };
  }
  return waiter.wait(
      ready, [&] { return Pending{0, what(), awaited()}; }, bell);
}

}  // namespace hccl
