// Calls into the library: without the GIL, interruptible by Ctrl-C, and with failures as
// exceptions.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/hccl_framework.h"

namespace hccl::python {

namespace nb = nanobind;

using LibraryCall = std::function<HcclResult()>;
/// The Python objects that own the memory of a call.
using Owners = std::vector<nb::object>;

/// Raises hccl.HcclError with this code.
[[noreturn]] void raise_error(HcclResult code, const std::string& text);

/// Raises hccl.HcclError with this thread's last error text if `code` is not success. So this
/// thread must have made the call.
void check(HcclResult code);

struct Outcome {
  HcclResult code = HCCL_SUCCESS;
  std::string text;          // the error text of the thread that made the call
  std::uint32_t source = 0;  // the sender of a message
};

/// Makes the call and returns its outcome.
Outcome call_now(const LibraryCall& call);

/// A running operation that a program can wait for. Callers hold the GIL. The object keeps the
/// memory of the call alive until the operation is done. Until then BlockingCalls keeps the object
/// alive, even if Python drops the handle.
class PendingRequest {
 public:
  PendingRequest(HcclRequest request, Owners owners);
  ~PendingRequest();
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  /// Waits without the GIL. Returns true when the operation is done, and false after `limit`
  /// seconds. If the operation failed, every call raises its failure. If a signal handler raises
  /// (Ctrl-C), raises the same exception, and the operation continues.
  bool wait(std::optional<double> limit);
  /// Returns whether the operation has ended, with success or failure. Never waits.
  bool done();
  /// Returns the rank of the message's sender. ValueError: the operation is not done.
  std::uint32_t source();

  /// Keeps the call's memory until the process ends, because nothing checks any more whether the
  /// call has ended.
  void abandon();

 private:
  std::optional<Outcome> outcome_within(std::chrono::milliseconds patience) const;
  bool look(std::chrono::milliseconds patience);

  HcclRequest request_;
  Owners kept_;
  std::optional<Outcome> outcome_;
  pid_t process_;
};

/// Runs the blocking calls of a communicator one at a time, in order, without the GIL. Python runs
/// signal handlers on the main thread only, and a signal does not interrupt a collective. So a
/// thread of the library makes the calls of the main thread, which waits and checks for signals.
/// Callers of the members hold the GIL.
class BlockingCalls {
 public:
  /// `comm` is null for calls without a communicator; they run in no particular order.
  explicit BlockingCalls(HcclComm comm = nullptr);
  /// Never waits. The memory of calls that still run is kept until the process ends.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  /// Runs the call after the earlier ones, and returns when the call is done. Raises HcclError if
  /// the call failed. If a signal handler raises (Ctrl-C), raises the same exception at once, and
  /// the call continues in its thread. So the call must own its arguments. After an interrupted
  /// call no other call can run.
  void run(LibraryCall call, const Owners& owners = {});
  /// After this, run() on the main thread makes calls on the main thread itself. To end a call on
  /// Ctrl-C, the program must then call HcclCommAbort.
  void run_on_main_thread() { direct_ = true; }
  /// Like run(), for a call that ends the communicator.
  void run_last(LibraryCall call);
  /// Queues the call and returns at once.
  std::shared_ptr<PendingRequest> begin(LibraryCall call, const Owners& owners) {
    return begin_on(comm_, std::move(call), owners);
  }
  /// Keeps the memory of a request that the library runs by itself, until the request is done.
  std::shared_ptr<PendingRequest> watch(HcclRequest request, const Owners& owners);
  /// Returns when all queued calls have ended, with success or failure. Raises on Ctrl-C, like
  /// run().
  void finish();

  /// Returns whether some call has begun and not ended.
  bool under_way();
  /// Returns whether a signal ended the wait for a call.
  bool interrupted() const { return interrupted_; }

 private:
  std::shared_ptr<PendingRequest> begin_on(HcclComm comm, LibraryCall call, const Owners& owners);
  void wait_to_end(PendingRequest& pending);

  HcclComm comm_;
  std::vector<std::shared_ptr<PendingRequest>> under_way_;
  std::size_t look_at_ = 0;  // if at least this many calls are listed, ended calls are removed
  bool interrupted_ = false;
  bool direct_ = false;
  pid_t process_;
};

}  // namespace hccl::python
