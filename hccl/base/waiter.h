// The only wait of the library: every blocking point is a Waiter, with a condition, a deadline, an
// abort flag, hooks, and a Sleeper or Doorbell. A Waiter spins for about as long as a wake-up
// takes, or yields if ranks share cores, and then sleeps. A waker makes a system call only if a
// thread sleeps.
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
#include "hccl/base/thread.h"

namespace hccl {

/// Lets a waiter sleep until another thread wakes it. A waiter sleeps if its condition is still
/// false after spinning. A Doorbell has the same members but is not derived from Sleeper: memory
/// that processes share cannot contain a pointer to a virtual table.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// Announces the sleep: from here on, wakers make the system call that ends a sleep. The waiter
  /// must check its condition again after prepare(). Returns a ticket for sleep(): a wake-up after
  /// prepare() ends a sleep with this ticket.
  virtual std::uint32_t prepare() = 0;
  /// Sleeps until woken, at most for the given time. May return early.
  virtual void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) = 0;
  /// Ends the announcement: the waiter runs again.
  virtual void awake() = 0;
};

struct WaitPolicy {
  /// How long to spin before sleeping: about as long as a wake-up takes. Zero: sleep at once.
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  /// True if there are more ranks than cores: the waiter yields the core between checks instead of
  /// spinning.
  bool shared_cores = false;
  /// The longest single sleep. It limits how late a waiter sees an event that rings no bell, such
  /// as an abort or the progress of other work.
  std::chrono::nanoseconds longest_nap = std::chrono::milliseconds(100);
};
/// The time between two reports of a long wait. The root needs two reports within a second for some
/// verdicts.
inline constexpr std::chrono::milliseconds kReportInterval{400};
inline constexpr WaitPolicy kSleepAtOnce{.spin = std::chrono::nanoseconds(0)};

/// A call that waits for other ranks.
struct WaitingCall {
  std::uint64_t sequence = 0;  ///< number of the call
  std::string call;
  std::vector<int> late;  ///< ranks that have not made the call
};

enum class Waited { kReady, kTimeout, kAborted };

/// Checks ready() a few times without reading the clock. Returns whether ready() returned true.
template <class Atomics = StdAtomics, class Ready>
[[gnu::always_inline]] inline bool soon(Ready&& ready, const WaitPolicy& policy) {
  const int looks = policy.spin <= policy.spin.zero() ? 1 : policy.shared_cores ? 8 : 32;
  for (int i = 0;;) {
    if (ready()) return true;
    if (++i == looks) return false;
    policy.shared_cores ? Atomics::yield() : Atomics::pause();
  }
}

/// One Waiter serves many waits, because a wait does not change the Waiter. Conditions and hooks
/// must not block. A "bell" below is a Doorbell or a Sleeper.
template <class Atomics = StdAtomics>
struct BasicWaiter {
  Deadline deadline = Deadline::never();
  /// The limit of each wait, from its beginning; 0: none.
  std::chrono::nanoseconds timeout{0};
  const BasicAbortFlag<Atomics>* abort = nullptr;
  WaitPolicy policy{};
  /// wait() calls this function to advance work that does not ring the bell, and then sleeps at
  /// most a millisecond at a time. A failure of the function ends the wait.
  std::function<Status()> progress{};
  /// A long wait() calls this function at least every kReportInterval, and before it times out.
  std::function<void(const WaitingCall&)> stalled{};

  /// Waits until ready() is true, without the hooks. May call ready() again after ready() returned
  /// true.
  template <class Ready, class Bell>
  Waited until(Ready&& ready, Bell& bell) const {
    return run(ready, end(), std::chrono::nanoseconds::max(), [] {}, bell, policy.longest_nap);
  }

  /// Waits until ready() is true. Fails with kTimeout, with the abort's reason, or with a failure
  /// of progress(). The text of kTimeout names the call and the late ranks, which describe()
  /// returns as a WaitingCall.
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

/// Returns the failure of a call that was not ready in time.
Status timed_out(const WaitingCall& pending);

/// Sleeps between two tries: for `length`, or until the deadline or the abort.
void nap(std::chrono::nanoseconds length, Deadline deadline, const AbortFlag* abort = nullptr);

// ---- internal ----

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
  const NotCancelled not_cancelled;
  Status failure;
  const auto look = [&] {
    if (!failure.ok() || ready()) return true;
    if (progress) failure = progress();
    return !failure.ok();
  };
  const auto report = [&] {
    try {
      if (stalled) stalled(describe());
    } catch (...) {  // NOLINT(bugprone-empty-catch): a failed report must not end the wait
    }
  };
  const Deadline limit = end();
  // Some reports are made even before a short deadline, so that the error can name the absent
  // ranks.
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
