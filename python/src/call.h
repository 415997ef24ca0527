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

/// Raises hccl.HcclError with the last error text unless `code` is success. The call must have been
/// made on this thread.
void check(HcclResult code);

struct Outcome {
  HcclResult code = HCCL_SUCCESS;
  std::string text;          // the error text of the thread that made the call
  std::uint32_t source = 0;  // the sender of a message
};

/// Makes the call and returns its outcome.
Outcome call_now(const LibraryCall& call);

/// A running operation that a program can wait for. Callers hold the GIL. The object keeps the
/// memory of the call alive until the operation is done. Until then BlockingCalls keeps the object,
/// even if Python drops its handle.
class PendingRequest {
 public:
  PendingRequest(HcclRequest request, Owners owners);
  ~PendingRequest();
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  /// Waits without the GIL. Returns false after `limit` seconds. If the operation failed, every
  /// call raises its failure. If a signal handler raises (Ctrl-C), raises the same exception, and
  /// the operation goes on.
  bool wait(std::optional<double> limit);
  /// Whether the operation has ended, with success or failure. Never waits.
  bool done();
  /// The rank of the message's sender. Raises unless done.
  std::uint32_t source();

  /// Keeps the memory for ever, because nobody will learn when the call ends.
  void abandon();

 private:
  std::optional<Outcome> outcome_within(std::chrono::milliseconds patience) const;
  bool look(std::chrono::milliseconds patience);

  HcclRequest request_;
  Owners kept_;
  std::optional<Outcome> outcome_;
  pid_t process_;
};

/// Runs the calls of a communicator that may block, one at a time, in order, without the GIL. The
/// library cannot be interrupted in a collective, and Python runs signal handlers on the main
/// thread only. So a thread of the library makes the calls, and the main thread checks for signals
/// while it waits. Callers of the members hold the GIL.
class BlockingCalls {
 public:
  /// `comm` is null for calls without a communicator; these have no order.
  explicit BlockingCalls(HcclComm comm = nullptr);
  /// Never waits. If calls are running, their memory is kept for ever.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  /// Runs the call after the earlier ones, and returns when it is done. Raises HcclError if the
  /// call failed. If a signal handler raises (Ctrl-C), raises the same exception at once. Then the
  /// call goes on in its thread, so it must own its arguments, and no other call can run.
  void run(LibraryCall call, const Owners& owners = {});
  /// From here on run() makes calls of the main thread on the main thread. The program itself must
  /// then end a call on Ctrl-C, with HcclCommAbort.
  void run_on_main_thread() { direct_ = true; }
  /// As run(), for a call that ends the communicator.
  void run_last(LibraryCall call);
  /// Queues the call.
  std::shared_ptr<PendingRequest> begin(LibraryCall call, const Owners& owners) {
    return begin_on(comm_, std::move(call), owners);
  }
  /// Keeps the memory of a request that the library runs by itself, until the request is done.
  std::shared_ptr<PendingRequest> watch(HcclRequest request, const Owners& owners);
  /// Returns when all queued calls have ended, with success or failure. On Ctrl-C raises as run()
  /// does.
  void finish();

  /// Whether some call has begun and not ended.
  bool under_way();
  /// Whether a signal ended the wait for a call.
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
