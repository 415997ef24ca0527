// The one wait. Every blocking point of the library is a Waiter: a condition, a deadline, an abort
// flag, hooks, and somewhere to sleep. It spins for about the cost of a wake-up, yields where ranks
// share cores, then sleeps; a waker makes a system call only if somebody sleeps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hccl/base/abort_flag.h"
#include "hccl/base/atomics.h"
#include "hccl/base/deadline.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/status.h"

namespace hccl {

/// Where a waiter sleeps once spinning did not pay. A doorbell has the same members and is none:
/// memory that processes share cannot hold a virtual table.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// From here on wakers make the system call. The waiter checks its condition again after this.
  /// Gives a ticket for sleep(): a wake-up after prepare() ends a sleep with this ticket.
  virtual std::uint32_t prepare() = 0;
  /// Sleeps until woken, for at most this long. Returns early whenever it likes.
  virtual void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) = 0;
  /// The waiter runs again.
  virtual void awake() = 0;
};

struct WaitPolicy {
  /// How long to spin before sleeping; about what a wake-up costs. Zero: sleep at once.
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  /// More ranks than cores: give the core away at once instead of spinning.
  bool shared_cores = false;
  /// Sleeps no longer than this at a time, so that what cannot ring (an abort, other work of the
  /// condition) is still seen.
  std::chrono::nanoseconds longest_nap = std::chrono::milliseconds(100);
};
/// Between two reports of a wait that goes on. Some judgements take two of them, and less than a
/// second.
inline constexpr std::chrono::milliseconds kReportInterval{400};
inline constexpr WaitPolicy kSleepAtOnce{.spin = std::chrono::nanoseconds(0)};

/// What a wait is for, in words.
struct Pending {
  std::uint64_t sequence = 0;  ///< number of the call
  std::string call;
  std::vector<int> late;  ///< ranks that have not come
};

enum class Waited { kReady, kTimeout, kAborted };

/// Looks a few times, without a look at the clock, for what is just about to happen.
template <class Atomics = StdAtomics, class Ready>
[[gnu::always_inline]] inline bool soon(Ready&& ready, const WaitPolicy& policy) {
  const int looks = policy.spin <= policy.spin.zero() ? 1 : policy.shared_cores ? 8 : 32;
  for (int i = 0;;) {
    if (ready()) return true;
    if (++i == looks) return false;
    policy.shared_cores ? Atomics::yield() : Atomics::pause();
  }
}

/// Keep one and wait with it often: it is not changed by waiting. Conditions and hooks must not
/// block. Anywhere below, a bell is a Doorbell or a Sleeper.
template <class Atomics = StdAtomics>
struct BasicWaiter {
  Deadline deadline = Deadline::never();
  /// Of each wait, from its beginning; 0: none.
  std::chrono::nanoseconds timeout{0};
  const BasicAbortFlag<Atomics>* abort = nullptr;
  WaitPolicy policy{};
  /// Of wait(): moves something on that does not ring the bell. Sleeps are a millisecond at most
  /// then. A failure ends the wait.
  std::function<Status()> progress{};
  /// Of wait(): called every kReportInterval at least, and before time is up.
  std::function<void(const Pending&)> stalled{};

  /// Waits until ready(), which may be called again after it was true. Without the hooks.
  template <class Ready, class Bell>
  Waited until(Ready&& ready, Bell& bell) const {
    return run(ready, end(), std::chrono::nanoseconds::max(), [] {}, bell, policy.longest_nap);
  }

  /// Waits until ready(). kTimeout, naming the call and the late ranks as describe() gives them
  /// (a Pending); the abort's reason; what progress() failed with.
  template <class Ready, class Describe, class Bell>
  [[gnu::always_inline]] Status wait(Ready&& ready, Describe&& describe, Bell& bell) const {
    if (soon<Atomics>(ready, policy)) return {};
    return wait_long(ready, describe, bell);
  }

 private:
  Deadline end() const {
    return timeout.count() == 0 ? deadline : deadline.sooner(Deadline::after(timeout));
  }
  template <class Ready, class Describe, class Bell>
  [[gnu::noinline]] Status wait_long(Ready& ready, Describe& describe, Bell& bell) const;
  template <class Ready, class Report, class Bell>
  Waited run(Ready&& ready, Deadline end, std::chrono::nanoseconds interval, Report&& report,
             Bell& bell, std::chrono::nanoseconds longest_nap) const;
};

using Waiter = BasicWaiter<>;

/// The failure of a call that was not ready in time.
Status timed_out(const Pending& pending);

/// Sleeps between two tries, for so long or until the deadline or the abort.
void nap(std::chrono::nanoseconds length, Deadline deadline, const AbortFlag* abort = nullptr);

// ---- inside ----

template <class Atomics>
template <class Ready, class Report, class Bell>
Waited BasicWaiter<Atomics>::run(Ready&& ready, Deadline end, std::chrono::nanoseconds interval,
                                 Report&& report, Bell& bell,
                                 std::chrono::nanoseconds longest_nap) const {
  const auto aborted = [this] { return abort != nullptr && abort->raised(); };
  Deadline next_report = Deadline::after(interval);
  for (;;) {
    if (soon<Atomics>(ready, policy)) return Waited::kReady;
    if (policy.spin > policy.spin.zero()) {
      const Deadline spin_end = Deadline::after(policy.spin).sooner(next_report).sooner(end);
      do {
        for (int i = 0; i < 32; ++i) {
          if (ready()) return Waited::kReady;
          if (aborted()) return Waited::kAborted;
          policy.shared_cores ? Atomics::yield() : Atomics::pause();
        }
      } while (!spin_end.expired());
    }
    if (aborted()) return Waited::kAborted;
    if (end.expired()) return ready() ? Waited::kReady : Waited::kTimeout;
    if (next_report.expired()) {
      report();
      next_report = Deadline::after(interval);
    }
    const std::uint32_t ticket = bell.prepare();
    if (!ready() && !aborted()) {
      bell.sleep(ticket, std::min({end.left(), next_report.left(), longest_nap}));
    }
    bell.awake();
  }
}

template <class Atomics>
template <class Ready, class Describe, class Bell>
Status BasicWaiter<Atomics>::wait_long(Ready& ready, Describe& describe, Bell& bell) const {
  using std::chrono::milliseconds;
  Status failure;
  const auto look = [&] {
    if (!failure.ok() || ready()) return true;
    if (progress) failure = progress();
    return !failure.ok();
  };
  const auto report = [&] {
    if (stalled) stalled(describe());
  };
  const Deadline limit = end();
  // Some reports fit in before even a short deadline, so that it can be told who did not come.
  const auto interval =
      std::clamp<std::chrono::nanoseconds>(limit.left() / 4, milliseconds(100), kReportInterval);
  const auto longest = progress
                           ? std::min<std::chrono::nanoseconds>(policy.longest_nap, milliseconds(1))
                           : policy.longest_nap;
  switch (run(look, limit, interval, report, bell, longest)) {
    case Waited::kReady:
      return failure;
    case Waited::kAborted:
      return abort->reason();
    case Waited::kTimeout:
      report();
      break;
  }
  return timed_out(describe());
}

}  // namespace hccl
