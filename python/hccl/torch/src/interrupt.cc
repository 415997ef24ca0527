#include "interrupt.h"

#include <c10/util/thread_name.h>
#include <semaphore.h>
#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/pybind.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "error.h"
#include "exit.h"
#include "hccl/hccl_framework.h"
#include "interpreter.h"

namespace hccl::pytorch {
namespace {

// If the main thread runs no Python code within this time after Ctrl-C, operations are aborted.
constexpr std::chrono::milliseconds kTimeToRunPython{300};

sem_t interrupts;          // counts Ctrl-C for the watcher
struct sigaction pythons;  // Python's handler, which on_interrupt() calls

void on_interrupt(int number, siginfo_t* info, void* context) {
  const int error = errno;
  ::sem_post(&interrupts);
  errno = error;
  if ((pythons.sa_flags & SA_SIGINFO) != 0) {
    pythons.sa_sigaction(number, info, context);
  } else {
    pythons.sa_handler(number);
  }
}

bool is_pythons(const struct sigaction& action) {
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction != &on_interrupt;
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

/// A thread that aborts the operations of all groups on Ctrl-C. It lives as long as the process.
class Watcher {
 public:
  Watcher() {
    ::sem_init(&interrupts, 0, 0);
    const auto serve = [](void* self) {
      static_cast<Watcher*>(self)->serve();
      return HCCL_SUCCESS;
    };
    check(HcclSubmit(serve, nullptr, false, nullptr, this, nullptr), "init_process_group");
  }

  void take_signal() {
    const std::lock_guard lock(mutex_);
    struct sigaction action = {};
    ::sigaction(SIGINT, nullptr, &action);
    if (!is_pythons(action)) return;
    pythons = action;
    action.sa_flags |= SA_SIGINFO;
    action.sa_sigaction = &on_interrupt;
    ::sigaction(SIGINT, &action, nullptr);
  }

 private:
  [[noreturn]] void serve() {
    c10::setThreadName("hccl_interrupt");
    for (;;) {
      if (::sem_wait(&interrupts) != 0) continue;
      if (python_ends() || python_runs() || !ends_the_program()) continue;
      for (const auto& each : living_communicators()) {
        each->abort("the program was interrupted (Ctrl-C)");
      }
    }
  }

  // Returns whether the main thread runs Python code, and so Python's handler, within
  // kTimeToRunPython.
  bool python_runs() {
    std::unique_lock lock(mutex_);
    const unsigned before = runs_;
    Py_AddPendingCall(
        [](void* self) {
          static_cast<Watcher*>(self)->note();
          return 0;
        },
        this);
    return ran_.wait_for(lock, kTimeToRunPython, [&] { return runs_ != before; });
  }

  void note() {
    const std::lock_guard lock(mutex_);
    ++runs_;
    ran_.notify_all();
  }

  static bool ends_the_program() {
    const InterpreterLock lock;
    try {
      const auto signal = pybind11::module_::import("signal");
      return signal.attr("getsignal")(SIGINT).is(signal.attr("default_int_handler"));
    } catch (const pybind11::error_already_set&) {
      return false;
    }
  }

  std::mutex mutex_;
  std::condition_variable ran_;
  unsigned runs_ = 0;
};

}  // namespace

void end_on_interrupt() {
  static auto* const watcher = new Watcher;  // its thread outlives statics
  watcher->take_signal();
}

void run_signal_handlers() {
  if (Py_IsInitialized() == 0) return;
  const InterpreterLock lock;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace hccl::pytorch
