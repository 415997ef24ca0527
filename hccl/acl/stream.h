// Streams: ordered queues of work. Each has its own worker thread, which the first task starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "hccl/acl/acl_rt.h"
#include "hccl/base/deadline.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"

namespace hccl::acl {

/// How the runtime's threads wait. A wait may last seconds, so from the start the waiting thread
/// yields its core whenever another thread wants the core.
inline Waiter waiter(Deadline deadline = Deadline::never(), const AbortFlag* abort = nullptr) {
  return {.deadline = deadline,
          .abort = abort,
          .policy = {.spin = std::chrono::microseconds(20), .shared_cores = true}};
}

/// Converts a timeout of the runtime's functions, in milliseconds; -1 means no limit.
inline Deadline deadline_of(std::int32_t milliseconds) {
  return milliseconds == -1 ? Deadline::never()
                            : Deadline::after(std::chrono::milliseconds(milliseconds));
}

/// Every member is safe to use from any thread.
class Stream {
 public:
  using Task = std::function<Status()>;
  static constexpr int kNoDevice = -1;

  /// `device` is the device of the creating thread; aclrtSynchronizeDevice waits for all streams of
  /// a device.
  explicit Stream(int device = kNoDevice) : device_(device) {}
  /// Waits for all submitted tasks.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Queues the task and returns at once. Tasks run one after the other, in order, on the worker or
  /// on a thread that synchronizes. The first failure of a task becomes the failure of the stream.
  /// In stop-on-failure mode the tasks behind the failed task do not run until synchronize() has
  /// returned the failure. `skipped` is called in place of a task that does not run (also if the
  /// stream is destroyed first), so that waiters elsewhere are released. A task must not keep the
  /// stream alive.
  void submit(Task task, std::function<void()> skipped = nullptr);
  /// Waits until all tasks submitted before are done, and runs the tasks that the worker has not
  /// begun. Returns, and clears, the first failure since the last call.
  Status synchronize();
  /// As synchronize(), but leaves the work to the worker, because a task may run past the deadline.
  Status synchronize(Deadline deadline);
  /// Whether no task is queued or running.
  bool idle() const;

  /// Whether the calling thread is running a task of this stream.
  bool runs_here() const { return runner_.load() == std::this_thread::get_id(); }
  /// Sets the stop-on-failure mode. A second call fails.
  Status set_stop_on_failure(bool stop);
  /// Skips the tasks that have not begun, and ends a running task's wait.
  void abandon(Status reason);
  /// The flag by which abandon() ends tasks that wait.
  const AbortFlag& abandoned() const { return abandoned_; }
  int device() const { return device_; }

 private:
  struct Entry {
    Task run;
    std::function<void()> skipped;
  };
  void start_worker() HCCL_REQUIRES(mutex_);
  void worker();
  bool work(std::uint64_t upto);
  bool runnable() const;
  Status take_failure();
  Status within_task() const;

  const int device_;
  AbortFlag abandoned_;

  Mutex mutex_;
  std::deque<Entry> line_ HCCL_GUARDED_BY(mutex_);
  Status failure_ HCCL_GUARDED_BY(mutex_);
  bool mode_set_ HCCL_GUARDED_BY(mutex_) = false;
  bool stop_on_failure_ HCCL_GUARDED_BY(mutex_) = false;
  Thread worker_ HCCL_GUARDED_BY(mutex_);

  // Written with mutex_ held; read without mutex_ by waits for work or for its end.
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> busy_{false};  // a thread is running tasks
  std::atomic<bool> closing_{false};
  std::atomic<std::thread::id> runner_{};

  Doorbell work_bell_;  // the worker sleeps here
  Doorbell done_bell_;  // a thread that synchronizes sleeps here
};

/// Returns the stream behind a handle. kPtr: the handle is null. kPara: `handle` is not a stream,
/// or was destroyed.
Result<std::shared_ptr<Stream>> find_stream(aclrtStream handle);

/// Queues the task in the stream; for the default stream (NULL) runs it now.
Status submit(aclrtStream handle, Stream::Task task, std::function<void()> skipped = nullptr);

}  // namespace hccl::acl
