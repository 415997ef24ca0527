#include "hccl/acl/reports.h"

#include <pthread.h>

#include <utility>

#include "hccl/acl/failure.h"
#include "hccl/acl/stream.h"

namespace hccl::acl {

Status CallbackQueue::call(const std::shared_ptr<Report>& report, bool wait_for_it,
                           const AbortFlag& abort) {
  if (wait_for_it && thread_ == pthread_self()) {
    report->function(report->data);
    return {};
  }
  {
    const MutexLock lock(mutex_);
    due_.push_back(report);
    count_.store(due_.size());
  }
  due_bell_.ring();
  if (!wait_for_it) return {};
  const auto over = [&] { return report->state.load() != Report::State::kDue; };
  if (waiter(Deadline::never(), &abort).until(over, done_bell_) == Waited::kAborted) {
    return abort.reason();
  }
  if (report->state.load() == Report::State::kDone) return {};
  return failure(ACL_ERROR_RT_STREAM_NO_CB_REG, "the thread that was to call a function has left");
}

Status CallbackQueue::process(Deadline deadline) {
  const auto something = [this] { return count_.load() != 0; };
  if (waiter(deadline).until(something, due_bell_) != Waited::kReady) {
    return Status(Code::kTimeout, "timeout: no function is due");
  }
  for (;;) {
    std::shared_ptr<Report> report;
    {
      const MutexLock lock(mutex_);
      if (due_.empty()) return {};
      report = std::move(due_.front());
      due_.pop_front();
      count_.store(due_.size());
    }
    report->function(report->data);
    report->state.store(Report::State::kDone);
    done_bell_.ring();
  }
}

void CallbackQueue::drop(aclrtStream stream) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(due_, [&](const auto& report) {
      if (report->stream != stream) return false;
      report->state.store(Report::State::kDropped);
      return true;
    });
    count_.store(due_.size());
  }
  done_bell_.ring();
}

Status Reports::subscribe(std::uint64_t thread, aclrtStream stream) {
  const MutexLock lock(mutex_);
  if (streams_.count(stream) != 0) {
    return failure(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream has a thread for its functions already");
  }
  std::shared_ptr<CallbackQueue> callbacks;
  for (const auto& [other, subscription] : streams_) {
    if (subscription.thread == thread) callbacks = subscription.callbacks;
  }
  if (callbacks == nullptr) callbacks = std::make_shared<CallbackQueue>(thread);
  streams_.emplace(stream, Subscription{thread, std::move(callbacks)});
  return {};
}

Status Reports::unsubscribe(std::uint64_t thread, aclrtStream stream) {
  std::shared_ptr<CallbackQueue> callbacks;
  {
    const MutexLock lock(mutex_);
    const auto at = streams_.find(stream);
    if (at == streams_.end() || at->second.thread != thread) {
      return failure(ACL_ERROR_RT_THREAD_SUBSCRIBE, "threadId is not the stream's");
    }
    callbacks = std::move(at->second.callbacks);
    streams_.erase(at);
  }
  callbacks->drop(stream);
  return {};
}

Result<std::shared_ptr<CallbackQueue>> Reports::callbacks_of_stream(aclrtStream stream) {
  const MutexLock lock(mutex_);
  const auto at = streams_.find(stream);
  if (at != streams_.end()) return at->second.callbacks;
  return failure(ACL_ERROR_RT_STREAM_NO_CB_REG,
                 "stream has no thread for its functions: aclrtSubscribeReport comes first");
}

Result<std::shared_ptr<CallbackQueue>> Reports::callbacks_of_thread(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  for (const auto& [stream, subscription] : streams_) {
    if (subscription.thread == thread) return subscription.callbacks;
  }
  return failure(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                 "no stream has the calling thread: aclrtSubscribeReport comes first");
}

}  // namespace hccl::acl
