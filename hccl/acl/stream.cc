#include "hccl/acl/stream.h"

#include <limits>
#include <system_error>

#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"
#include "hccl/base/caught.h"

namespace hccl::acl {

Stream::~Stream() {
  closing_.store(true);
  while (work(std::numeric_limits<std::uint64_t>::max())) {
  }
  work_bell_.ring();
  worker_.join();
}

void Stream::submit(Task task, std::function<void()> skipped) {
  {
    const MutexLock lock(mutex_);
    if (!worker_.started()) start_worker();  // first, because start_worker() may throw
    line_.push_back({std::move(task), std::move(skipped)});
    submitted_.fetch_add(1);
  }
  work_bell_.ring();
}

// If no thread can be started, only threads that synchronize run the tasks.
void Stream::start_worker() {
  try {
    worker_ = Thread("hccl-stream", [this] { worker(); });
  } catch (const std::system_error&) {
  }
}

void Stream::worker() {
  for (;;) {
    waiter().until([this] { return closing_.load() || runnable(); }, work_bell_);
    if (!work(std::numeric_limits<std::uint64_t>::max()) && closing_.load()) return;
  }
}

bool Stream::runnable() const { return begun_.load() != submitted_.load() && !busy_.load(); }

// Runs tasks until `upto` tasks are done or none is queued. Returns false if another thread runs
// tasks, or if no task is queued.
bool Stream::work(std::uint64_t upto) {
  MutexLock lock(mutex_);
  if (busy_.load() || line_.empty()) return false;
  busy_.store(true);
  runner_.store(std::this_thread::get_id());
  while (!line_.empty() && done_.load() < upto) {
    Entry entry = std::move(line_.front());
    line_.pop_front();
    begun_.fetch_add(1);
    const bool skip = abandoned_.raised() || (stop_on_failure_ && !failure_.ok());
    lock.unlock();
    Status status;
    if (!skip) {
      status = guarded(entry.run);
    } else if (entry.skipped) {
      status = guarded([&] {
        entry.skipped();
        return Status();
      });
    }
    entry = {};  // the task releases its references before it counts as done
    lock.lock();
    if (failure_.ok()) failure_ = std::move(status);
    done_.fetch_add(1);
    done_bell_.ring();
  }
  runner_.store({});
  busy_.store(false);
  const bool more = !line_.empty();
  lock.unlock();
  if (more) {  // another thread may continue
    work_bell_.ring();
    done_bell_.ring();
  }
  return true;
}

Status Stream::take_failure() {
  const MutexLock lock(mutex_);
  return std::exchange(failure_, {});
}

Status Stream::within_task() const {
  return failure(ACL_ERROR_RT_STREAM_CONTEXT, "stream is running the task that calls this");
}

Status Stream::synchronize() {
  if (runs_here()) return within_task();
  const std::uint64_t target = submitted_.load();
  while (done_.load() < target) {
    if (work(target)) continue;
    waiter().until([&] { return done_.load() >= target || runnable(); }, done_bell_);
  }
  return take_failure();
}

Status Stream::synchronize(Deadline deadline) {
  if (runs_here()) return within_task();
  const std::uint64_t target = submitted_.load();
  const auto done = [&] { return done_.load() >= target; };
  if (waiter(deadline).until(done, done_bell_) != Waited::kReady) {
    return failure(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "timeout: the stream is not done yet");
  }
  return take_failure();
}

bool Stream::idle() const { return done_.load() == submitted_.load(); }

Status Stream::set_stop_on_failure(bool stop) {
  const MutexLock lock(mutex_);
  if (mode_set_) return bad("mode was set before, which is possible once for a stream");
  mode_set_ = true;
  stop_on_failure_ = stop;
  return {};
}

void Stream::abandon(Status reason) { abandoned_.raise(std::move(reason)); }

Result<std::shared_ptr<Stream>> find_stream(aclrtStream handle) {
  return Runtime::get().streams().get(handle);
}

Status submit(aclrtStream handle, Stream::Task task, std::function<void()> skipped) {
  if (handle == nullptr) return task();
  HCCL_ASSIGN_OR_RETURN(const auto stream, known(find_stream(handle)));
  stream->submit(std::move(task), std::move(skipped));
  return {};
}

}  // namespace hccl::acl
