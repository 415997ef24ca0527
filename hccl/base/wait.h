// The one wait. Every blocking point of the library goes through wait(): a condition, a deadline,
// an abort flag, and somewhere to sleep. It spins for about the cost of a wake-up, yields when
// ranks share cores, then sleeps; a waker makes a system call only if somebody sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "hccl/base/deadline.h"
#include "hccl/base/status.h"

namespace hccl {

/// Raised once, by any thread; the first reason wins and stays.
class AbortFlag {
 public:
  /// False when a reason was there already (which is kept).
  bool raise(Status reason);
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  /// The reason; success while not raised.
  Status reason() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status reason_;
};

/// Where a waiter sleeps once spinning did not pay.
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

/// A sleeper for threads of one process, or of several if it lies in shared memory: a futex that
/// counts rings. Any thread may ring; one or several may sleep.
class Bell final : public Sleeper {
 public:
  void ring();
  std::uint32_t prepare() override;
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override;
  void awake() override;

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

/// A bell in memory that several processes share, for wakers in a hurry: ringing it costs one load
/// while nobody sleeps. Who goes to sleep pays instead, with a barrier on every core (membarrier),
/// so that either the waker sees the sleeper or the sleeper sees what the waker stored before it
/// rang. Its first state is all zeroes. Any thread of any process may ring; several may sleep.
/// It has a sleeper's members and is none: memory that processes share cannot hold a virtual table.
class QuietBell final {
 public:
  /// Call once in each process, before it sleeps here. Where the kernel has no such barrier, wakers
  /// pay for one from then on.
  void join();
  void ring() {
    if (fence_.load(std::memory_order_relaxed) != 0) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    // The sleeper's barrier orders what the processor does; this orders what the compiler does.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  /// Wakes the sleepers for another reason than something stored in the shared memory.
  void wake();
  std::uint32_t prepare();
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most);
  void awake();

 private:
  std::atomic<std::uint32_t> fence_{0};
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

struct WaitPolicy {
  /// How long to spin before sleeping; about what a wake-up costs. Zero: sleep at once.
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  /// More ranks than cores: give the core away at once instead of spinning.
  bool shared_cores = false;
  /// Sleeps no longer than this at a time, so that what cannot ring the sleeper (an abort, other
  /// work of ready()) is still seen.
  std::chrono::nanoseconds longest_nap = std::chrono::milliseconds(100);
};

enum class Waited { kReady, kTimeout, kAborted };

namespace detail {
/// Lets the other thread of the core run for some cycles.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
void yield();
/// Between two looks while it spins. Where ranks share cores, what is waited for may need this one.
inline void relax(const WaitPolicy& policy) {
  if (policy.shared_cores) {
    yield();
  } else {
    pause();
  }
}
/// What is just about to happen is waited for without looking at the clock. Whether it has.
template <class Ready>
bool at_once(Ready&& ready, const WaitPolicy& policy) {
  const int looks = policy.spin <= policy.spin.zero() ? 1 : policy.shared_cores ? 8 : 32;
  for (int i = 0;;) {
    if (ready()) return true;
    if (++i == looks) return false;
    relax(policy);
  }
}
}  // namespace detail

/// Waits until ready() is true. ready() is the progress hook too: it is called again and again,
/// also right before sleeping, and must not block. `abort` may be null. Any is a Sleeper or a
/// QuietBell.
template <class Ready, class Any>
Waited wait(Ready&& ready, Deadline deadline, const AbortFlag* abort, Any& sleeper,
            const WaitPolicy& policy) {
  for (;;) {
    if (detail::at_once(ready, policy)) return Waited::kReady;
    if (policy.spin > policy.spin.zero()) {
      const Deadline spin_end = Deadline::after(policy.spin).sooner(deadline);
      do {
        for (int i = 0; i < 32; ++i) {
          if (ready()) return Waited::kReady;
          if (abort != nullptr && abort->raised()) return Waited::kAborted;
          detail::relax(policy);
        }
      } while (!spin_end.expired());
    }
    if (abort != nullptr && abort->raised()) return Waited::kAborted;
    if (deadline.expired()) return ready() ? Waited::kReady : Waited::kTimeout;
    const std::uint32_t ticket = sleeper.prepare();
    if (!ready() && !(abort != nullptr && abort->raised())) {
      sleeper.sleep(ticket,
                    std::min<std::chrono::nanoseconds>(deadline.left(), policy.longest_nap));
    }
    sleeper.awake();
  }
}

}  // namespace hccl
