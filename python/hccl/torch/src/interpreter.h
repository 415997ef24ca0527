#pragma once

#include <torch/csrc/python_headers.h>

namespace hccl::pytorch {

/// Gives up Python's interpreter lock if this thread holds it: other threads may need it while this
/// one waits for them.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) state_ = PyEval_SaveThread();
  }
  ~WithoutInterpreterLock() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

}  // namespace hccl::pytorch
