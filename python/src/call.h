// Calls into the library: without the GIL, with Ctrl-C honoured, and failures as exceptions.
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

/// Raises hccl.HcclError with the last error text unless `code` is success. For calls made
/// directly.
void check(HcclResult code);

struct Outcome {
  HcclResult code = HCCL_SUCCESS;
  std::string text;          // kept by the library for each thread: taken on the calling one
  std::uint32_t source = 0;  // of a message
};

/// Makes the call and notes its outcome.
Outcome call_now(const LibraryCall& call);

/// What was begun and can be waited for. Used with the GIL. It keeps the memory of the call alive
/// until it is done; BlockingCalls keeps it meanwhile, whatever Python does with its handle.
class PendingRequest {
 public:
  PendingRequest(HcclRequest request, Owners owners);
  ~PendingRequest();
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  /// Waits without the GIL; false once `limit` (seconds) has passed. Raises the failure, each time.
  /// If a signal handler raises (Ctrl-C), so does this, and what is under way goes on.
  bool wait(std::optional<double> limit);
  /// Whether it has ended, well or not. Never waits.
  bool done();
  /// The rank whose message came. Raises unless done.
  std::uint32_t source();

  /// Leaves the memory alone for ever: nobody will learn when the call has ended.
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
/// library cannot be interrupted in the middle of a collective, and Python runs signal handlers on
/// the main thread only: so a thread of the library calls, and the main thread looks for signals
/// while it waits. Used with the GIL.
class BlockingCalls {
 public:
  /// Null: for calls without a communicator, in no order.
  explicit BlockingCalls(HcclComm comm = nullptr);
  /// Never waits: memory of what is still under way is left alone for ever.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  /// Runs the call after those before it, and returns when it is done. Raises HcclError if it
  /// fails. If a signal handler raises (Ctrl-C), so does this, at once: the call stays in its
  /// thread, so it must own its arguments, and nothing else can be run.
  void run(LibraryCall call, const Owners& owners = {});
  /// run() for a call that ends the communicator.
  void run_last(LibraryCall call);
  /// Queues the call.
  std::shared_ptr<PendingRequest> begin(LibraryCall call, const Owners& owners) {
    return begin_on(comm_, std::move(call), owners);
  }
  /// Keeps the memory of something that the library runs by itself, until it is done.
  std::shared_ptr<PendingRequest> watch(HcclRequest request, const Owners& owners);
  /// Returns when all queued calls are done, well or not. Raises as run() on Ctrl-C.
  void finish();

  /// Something has begun and has not ended.
  bool under_way();
  /// A signal ended the wait for a call.
  bool interrupted() const { return interrupted_; }

 private:
  std::shared_ptr<PendingRequest> begin_on(HcclComm comm, LibraryCall call, const Owners& owners);
  void wait_to_end(PendingRequest& pending);

  HcclComm comm_;
  std::vector<std::shared_ptr<PendingRequest>> under_way_;
  std::size_t look_at_ = 0;  // this many under way: those that have ended are removed
  bool interrupted_ = false;
  pid_t process_;
};

}  // namespace hccl::python
