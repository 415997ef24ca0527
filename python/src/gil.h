// Releases Python's lock around calls of the library.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace hccl::python {

/// The thread has no GIL while this object lives. If the thread's call ends after Python has ended,
/// the thread sleeps until the process has ended. Python up to 3.13 would unwind the thread. Frames
/// that must not be unwound would then abort the process.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      for (;;) ::pause();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace hccl::python
