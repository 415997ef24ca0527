// Releases Python's lock around calls of the library.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace hccl::python {

/// Releases the GIL while this object lives. If the thread's call ends after Python has shut down,
/// the thread sleeps until the process ends. Otherwise Python up to 3.13 would unwind the thread's
/// stack, and a frame that cannot be unwound would abort the process.
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
