// What bounds a run, and the wait of a run that is bounded by it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/status.h"
#include "hccl/base/wait.h"

namespace hccl {

struct Limits {
  Deadline deadline = Deadline::never();
  const AbortFlag* abort = nullptr;
  WaitPolicy policy;
  /// Called while the run waits, about once a second and before a deadline passes, with its
  /// envelope in words and the peers whose own has not come; may be empty.
  std::function<void(const std::string& what, const std::vector<int>& awaited)> stalled;
};

/// Waits until ready(), and tells limits.stalled of the wait. what() gives the words of the call,
/// awaited() the peers that have not come. kTimeout, with both in the text; or the abort's reason.
template <class Ready, class What, class Awaited, class AnySleeper>
Status await(Ready&& ready, What&& what, Awaited&& awaited, const Limits& limits,
             AnySleeper& sleeper) {
  // Most of what is waited for is here at once, or nearly: before the clock is looked at.
  if (detail::at_once(ready, limits.policy)) return {};
  using Clock = Deadline::Clock;
  // Some reports fit in before even a short deadline, so that it can be told who did not come.
  const auto pause = std::clamp<std::chrono::nanoseconds>(
      limits.deadline.left() / 4, std::chrono::milliseconds(100), std::chrono::seconds(1));
  auto next_report = Clock::now() + pause;
  const auto report = [&] {
    if (limits.stalled) limits.stalled(what(), awaited());
    next_report = Clock::now() + pause;
  };
  unsigned polls = 0;
  const auto look = [&] {
    const bool yes = ready();
    if (!yes && (++polls & 1023) == 0 && Clock::now() > next_report) report();
    return yes;
  };
  for (;;) {
    // Short stretches, so that a sleeping run reports its stall too.
    const Deadline stretch = limits.deadline.sooner(Deadline::after(pause));
    const Waited waited = wait(look, stretch, limits.abort, sleeper, limits.policy);
    if (waited == Waited::kReady) return {};
    if (waited == Waited::kAborted) return limits.abort->reason();
    report();
    if (limits.deadline.expired()) {
      std::string missing;
      for (const int peer : awaited()) {
        missing +=
            (missing.empty() ? "; no call has come from rank " : ", ") + std::to_string(peer);
      }
      return Status(Code::kTimeout, "EI0002: " + what() + " did not end in time" + missing);
    }
  }
}

}  // namespace hccl
