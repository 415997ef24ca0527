// Callbacks of a stream that run inside aclrtProcessReport, on a thread that the program chooses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "hccl/acl/acl_rt.h"
#include "hccl/base/deadline.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/base/waiter.h"

namespace hccl::acl {

/// One callback.
struct Report {
  enum class State { kDue, kDone, kDropped };
  aclrtCallback function;
  void* data;
  aclrtStream stream;
  std::atomic<State> state{State::kDue};
};

/// The callbacks that wait for one thread. Every member is safe to use from any thread.
class CallbackQueue {
 public:
  explicit CallbackQueue(std::uint64_t thread) : thread_(thread) {}

  /// Queues the callback for process(). If `wait` is set, waits until the callback has run, or runs
  /// it at once if the caller is the queue's thread. STREAM_NO_CB_REG: the callback was dropped.
  /// After an abort, returns the abort's reason.
  Status call(const std::shared_ptr<Report>& report, bool wait, const AbortFlag& abort);
  /// Called by the queue's thread: waits for a callback and runs all queued callbacks. kTimeout: no
  /// callback came in time.
  Status process(Deadline deadline);
  /// Drops the queued callbacks of a stream.
  void drop(aclrtStream stream);

 private:
  const std::uint64_t thread_;
  Mutex mutex_;
  std::deque<std::shared_ptr<Report>> due_ HCCL_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};
  Doorbell due_bell_;
  Doorbell done_bell_;
};

/// Every member is safe to use from any thread. The caller has checked the streams.
class Reports {
 public:
  /// Fails with STREAM_SUBSCRIBE if the stream has a thread.
  Status subscribe(std::uint64_t thread, aclrtStream stream);
  /// Fails with THREAD_SUBSCRIBE if the stream does not have this thread.
  Status unsubscribe(std::uint64_t thread, aclrtStream stream);
  /// Fails with STREAM_NO_CB_REG if the stream has no thread.
  Result<std::shared_ptr<CallbackQueue>> callbacks_of_stream(aclrtStream stream);
  /// Fails with THREAD_SUBSCRIBE if no stream has this thread.
  Result<std::shared_ptr<CallbackQueue>> callbacks_of_thread(std::uint64_t thread);

 private:
  struct Subscription {
    std::uint64_t thread;
    std::shared_ptr<CallbackQueue> callbacks;
  };
  Mutex mutex_;
  std::map<aclrtStream, Subscription> streams_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::acl
