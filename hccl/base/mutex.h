// Locks with checks. clang reads from these macros which lock guards a member and which lock a
// function needs (-Wthread-safety, run by scripts/tidy.py). Builds without NDEBUG check the order
// of locks.
#pragma once

#include <cassert>
#include <mutex>

#if defined(__clang__)
#define HCCL_LOCKS(attribute) __attribute__((attribute))
#else
#define HCCL_LOCKS(attribute)
#endif
/// On a member: only a thread that holds this lock may use the member.
#define HCCL_GUARDED_BY(mutex) HCCL_LOCKS(guarded_by(mutex))
/// On a function: the caller must hold the lock.
#define HCCL_REQUIRES(mutex) HCCL_LOCKS(requires_capability(mutex))
/// On a function: the caller must not hold the lock.
#define HCCL_EXCLUDES(mutex) HCCL_LOCKS(locks_excluded(mutex))
/// On a function: clang does not check its locks.
#define HCCL_UNCHECKED HCCL_LOCKS(no_thread_safety_analysis)

namespace hccl {

/// A thread that holds a lock takes only locks of later levels; see hccl/README.md.
enum class LockLevel : unsigned {
  kState,
  kWorlds,
  kGroups,
  kRegistered,
  kHandles,
  kCommunicators,
  kQueue,
  kControl,
  kNode,
  kWorld,
  kInterrupt,
  kMailbox,
  kControlBox,
  kDevice,
  kLast,  // only the lock for a line of the log comes later
  kLog
};

class HCCL_LOCKS(capability("mutex")) Mutex {
 public:
  constexpr explicit Mutex([[maybe_unused]] LockLevel level = LockLevel::kLast)
#ifndef NDEBUG
      : level_(static_cast<unsigned>(level))
#endif
  {
  }
  void lock() HCCL_LOCKS(acquire_capability()) {
    enter(true);
    mutex_.lock();
  }
  bool try_lock() HCCL_LOCKS(try_acquire_capability(true)) {
    if (!mutex_.try_lock()) return false;
    enter(false);
    return true;
  }
  void unlock() HCCL_LOCKS(release_capability()) {
    mutex_.unlock();
    leave();
  }

 private:
#ifdef NDEBUG
  static void enter(bool) {}
  static void leave() {}
#else
  // The levels that this thread holds, as bits.
  static unsigned& held() {
    static thread_local unsigned levels = 0;
    return levels;
  }
  void enter([[maybe_unused]] bool waits) const {
    assert((!waits || held() >> level_ == 0) && "locks are taken in the order of LockLevel");
    held() |= 1U << level_;
  }
  void leave() const { held() &= ~(1U << level_); }
  const unsigned level_;
#endif
  std::mutex mutex_;
};

/// Holds a lock until the end of the scope. unlock() and lock() release the lock and take it again
/// in between.
class HCCL_LOCKS(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HCCL_LOCKS(acquire_capability(mutex)) : lock_(mutex) {}
  /// Takes over a lock that the thread holds.
  MutexLock(Mutex& mutex, std::adopt_lock_t adopt) HCCL_REQUIRES(mutex) : lock_(mutex, adopt) {}
  ~MutexLock() HCCL_LOCKS(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() HCCL_LOCKS(release_capability()) { lock_.unlock(); }
  void lock() HCCL_LOCKS(acquire_capability()) { lock_.lock(); }

 private:
  std::unique_lock<Mutex> lock_;
};

}  // namespace hccl
