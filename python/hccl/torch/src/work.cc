#include "work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

#include "queue.h"

namespace hccl::pytorch {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> new_future() {
  static const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(tensors);
}

}  // namespace

uint64_t now() {
  static std::atomic<uint64_t> moments = 0;
  return ++moments;
}

Work::Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, title, inputs), title_(title), outputs_(std::move(outputs)) {}

bool Work::wait(std::chrono::milliseconds timeout) {
  Queue::before_waiting_for(*this);
  std::unique_lock lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout <= kNoTimeout) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_for(lock, timeout, done)) {
    TORCH_CHECK_WITH(DistBackendError, false, title_, ": Timed out waiting ", timeout.count(),
                     "ms for the operation, which goes on");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  Queue::before_waiting_for(*this);  // a future's own wait does not ask the queue
  bool late = false;
  {
    std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = new_future();
    asked_ = now();
    late = settled_;
  }
  if (late) settle(*future_);
  return future_;
}

uint64_t Work::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void Work::complete(std::exception_ptr failure) {
  // A profiler may be stopped as soon as the future is complete.
  if (const auto record_end = std::exchange(recordFunctionEndCallback_, nullptr)) record_end();
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard lock(mutex_);
    failure_ = failure;
    settled_ = true;
    future = future_;
  }
  if (future) settle(*future);
  finish(std::move(failure));
}

void Work::settle(c10::ivalue::Future& future) const {
  if (failure_) {
    future.setError(failure_);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

}  // namespace hccl::pytorch
