#pragma once

#include <cxxabi.h>
#include <torch/csrc/python_headers.h>
#include <unistd.h>

namespace hccl::pytorch {

/// Makes the call, which takes Python's interpreter lock. If Python has ended, the thread sleeps
/// until the process ends. Otherwise Python up to 3.13 would unwind the thread's stack, and a frame
/// that cannot be unwound would abort the process.
template <typename Call>
auto call_or_sleep(const Call& call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

/// Releases Python's interpreter lock if this thread holds it, because other threads may need the
/// lock while this thread waits for them.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) state_ = PyEval_SaveThread();
  }
  ~WithoutInterpreterLock() {
    if (state_ != nullptr) call_or_sleep([this] { PyEval_RestoreThread(state_); });
  }
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

/// Takes the interpreter lock, on any thread.
class InterpreterLock {
 public:
  InterpreterLock() : state_(call_or_sleep([] { return PyGILState_Ensure(); })) {}
  ~InterpreterLock() { PyGILState_Release(state_); }
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace hccl::pytorch
