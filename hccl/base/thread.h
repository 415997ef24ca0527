// The library's threads, and their signal masks.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "hccl/base/error_text.h"

namespace hccl {

/// Blocks all signals of the calling thread except SIGSEGV and the other signals of faults, which
/// crash handlers need. Threads that this thread starts meanwhile inherit the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

/// While this object lives, a call that would make a file longer than the process's limit (ulimit
/// -f) fails with EFBIG. Otherwise SIGXFSZ would end the process.
class FilesWithinLimit {
 public:
  FilesWithinLimit() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  /// Does not change errno.
  ~FilesWithinLimit() {
    const int error = errno;
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FilesWithinLimit(const FilesWithinLimit&) = delete;
  FilesWithinLimit& operator=(const FilesWithinLimit&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_;
};

/// While this object lives, pthread_cancel() does not unwind the calling thread. Unwinding would
/// end the process at noexcept or catch (...), and would leave operations half done.
class NotCancelled {
 public:
  NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

class Thread;

/// Gives a thread of the library the program's signal mask while it runs a function of the program.
/// Threads and processes that the function starts inherit the mask. The program's mask is the mask
/// of the program's thread that started the library's thread. On a thread of the program nothing
/// changes.
class ProgramMask {
 public:
  ProgramMask() : program_(of_this_thread()) {
    if (program_ != nullptr) pthread_sigmask(SIG_SETMASK, program_, &before_);
  }
  ~ProgramMask() {
    if (program_ != nullptr) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  ProgramMask(const ProgramMask&) = delete;
  ProgramMask& operator=(const ProgramMask&) = delete;

 private:
  friend class Thread;
  // Null on threads of the program.
  static const sigset_t*& of_this_thread() {
    static thread_local const sigset_t* mask = nullptr;
    return mask;
  }

  const sigset_t* program_;
  sigset_t before_;
};

/// A thread with a name, on which no signal of the program is handled. The destructor joins the
/// thread. If the destructor runs on the thread itself or in a forked child, which does not have
/// the thread, it detaches the thread instead.
class Thread {
 public:
  Thread() = default;
  /// Runs the body. An exception that leaves the body ends the thread, not the process.
  /// std::system_error: no thread can be started.
  template <std::size_t kSize, class Body>
  Thread(const char (&name)[kSize], Body body) : process_(::getpid()) {
    static_assert(kSize <= 16, "the kernel takes names of 15 characters");
    const SignalsBlocked blocked;
    const sigset_t* const inherited = ProgramMask::of_this_thread();
    try {
      thread_ =
          std::thread([text = name + 0, mask = inherited == nullptr ? blocked.before() : *inherited,
                       body = std::move(body)]() mutable {
            ProgramMask::of_this_thread() = &mask;
            pthread_setname_np(pthread_self(), text);
            try {
              body();
            } catch (...) {  // NOLINT(bugprone-empty-catch): see above
            }
          });
    } catch (const std::system_error& error) {
      throw std::system_error(error.code(),
                              std::string("the thread ") + name +
                                  " cannot be started; raise the limit of threads (ulimit -u, "
                                  "pids.max of the control group) or run fewer ranks here" +
                                  limit_text(ENOMEM));
    }
  }
  Thread(Thread&& other) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    process_ = other.process_;
    return *this;
  }
  ~Thread() { join(); }

  /// Whether the thread has been started and is neither joined nor detached.
  bool started() const { return thread_.joinable(); }
  /// Whether the calling thread is this thread.
  bool is_current() const { return thread_.get_id() == std::this_thread::get_id(); }
  void join() {
    if (!started()) return;
    process_ == ::getpid() && !is_current() ? thread_.join() : thread_.detach();
  }
  void detach() { thread_.detach(); }

 private:
  std::thread thread_;
  pid_t process_ = 0;
};

}  // namespace hccl
