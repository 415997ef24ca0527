// Calls into the library: without the GIL, with Ctrl-C honoured, and failures as exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hccl/hccl_types.h"

namespace hccl::python {

namespace nb = nanobind;

using LibraryCall = std::function<HcclResult()>;

/// Raises hccl.HcclError with this code.
[[noreturn]] void raise_error(HcclResult code, const std::string& text);

/// Raises hccl.HcclError with the last error text unless `code` is success. For calls made
/// directly.
void check(HcclResult code);

/// Runs library calls that may block, one at a time, without the GIL. The library cannot be
/// interrupted in the middle of a collective, and Python runs signal handlers on the main thread
/// only: so the main thread lets a helper thread call, and looks for signals while it waits.
class BlockingCalls {
 public:
  BlockingCalls() = default;
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  /// Raises HcclError if the call fails. If a signal handler raises (Ctrl-C), so does this, at
  /// once: the call stays in its thread for ever, so it must own its arguments, and `kept` (the
  /// owners of its memory) is never released.
  void run(LibraryCall call, std::vector<nb::object> kept = {});

  /// A signal ended the wait for a call: nothing else can be run.
  bool interrupted() const { return interrupted_; }

 private:
  class Helper;
  std::shared_ptr<Helper> helper_;
  bool interrupted_ = false;
};

}  // namespace hccl::python
