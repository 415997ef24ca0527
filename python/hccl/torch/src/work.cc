#include "work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "error.h"
#include "exit.h"
#include "interpreter.h"

namespace hccl::pytorch {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> new_future(bool of_lists) {
  static const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  static const c10::TypePtr lists = c10::ListType::create(list);
  return c10::make_intrusive<c10::ivalue::Future>(of_lists ? lists : list);
}

// The communicator of the operation whose callback runs on this thread.
thread_local HcclComm calling_back = nullptr;
thread_local bool in_callback = false;  // a callback of some operation runs here

// Completes the future with the failure, because a thread may wait for the future.
void fail(c10::ivalue::Future& future, std::exception_ptr failure) noexcept {
  try {
    if (!future.completed()) future.setErrorIfNeeded(std::move(failure));
  } catch (...) {  // NOLINT(bugprone-empty-catch): a callback of the future threw
  }
}

}  // namespace

Work::Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, title, inputs), title_(title), outputs_(std::move(outputs)) {}

Work::~Work() {
  if (request_ != nullptr) static_cast<void>(HcclRequestFree(request_));
}

bool Work::calls_back() noexcept { return in_callback; }

void Work::start(HcclComm comm, std::function<void(HcclComm)> run, bool caller_waits) {
  comm_ = comm;
  run_ = std::move(run);
  const auto call = [](void* arg) {
    auto* const self = static_cast<Work*>(arg);
    try {
      self->run_(self->comm_);
    } catch (...) {
      self->failure_ = std::current_exception();
    }
    return HCCL_SUCCESS;
  };
  const auto done = [](void* arg, HcclResult) {
    if (python_ends()) return;
    const auto self = c10::intrusive_ptr<Work>::reclaim(static_cast<Work*>(arg));
    self->run_ = nullptr;  // frees its tensors before the operation completes
    const HcclComm outer = std::exchange(calling_back, self->comm_);
    self->complete_future(self->has_future_at_end(self->failure_));
    calling_back = outer;
  };
  auto* const self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this).release();
  const HcclResult result = HcclSubmit(call, comm, caller_waits, done, self, &request_);
  if (!in_callback) sleep_if_late();
  if (result == HCCL_SUCCESS) return;
  c10::intrusive_ptr<Work>::reclaim(self);
  check(result, "submit");
}

// If this thread runs a callback of the same communicator, runs the operation here, because the
// callback waits for the operation.
void Work::end_in_callback() const {
  if (request_ == nullptr || comm_ == nullptr || calling_back != comm_) return;
  const WithoutInterpreterLock unlocked;
  static_cast<void>(HcclRequestWait(request_, 0, nullptr));
}

bool Work::wait(std::chrono::milliseconds timeout) {
  end_in_callback();
  std::unique_lock lock(mutex_);
  const auto done = [this] { return completed_; };
  TORCH_CHECK_WITH(DistBackendError, completed_ || !python_ends(), title_,
                   ": its group has ended with the program");
  bool in_time = true;
  if (timeout <= kNoTimeout) {
    cv_.wait(lock, done);
  } else {
    in_time = cv_.wait_for(lock, timeout, done);
  }
  lock.unlock();
  if (!in_callback) sleep_if_late();
  TORCH_CHECK_WITH(DistBackendError, in_time, title_, ": Timed out waiting ", timeout.count(),
                   "ms for the operation, which goes on");
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  end_in_callback();  // because a future's own wait does not call the library
  bool late = false;
  {
    std::lock_guard lock(mutex_);
    if (future_) return future_;
    TORCH_CHECK_WITH(DistBackendError, settled_ || !python_ends(), title_,
                     ": its group has ended with the program");
    future_ = new_future(!lists_.empty());
    if (request_ != nullptr) static_cast<void>(HcclRequestMark(request_));
    late = settled_;
  }
  if (!late) return future_;
  try {
    settle(*future_);
  } catch (...) {
    fail(*future_, std::current_exception());
    throw;
  }
  return future_;
}

bool Work::has_future_at_end(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  settled_ = true;
  return future_ != nullptr;
}

void Work::complete_future(bool future) noexcept {
  const bool outer = std::exchange(in_callback, true);
  std::exception_ptr failure = failure_;
  try {
    // First, because a profiler may be stopped as soon as the future is complete.
    if (const auto record_end = std::exchange(recordFunctionEndCallback_, nullptr)) record_end();
    if (future) settle(*future_);
  } catch (...) {  // the program has completed the future, or a callback threw
    failure = std::current_exception();
    if (future) fail(*future_, failure);
  }
  finish(std::move(failure));
  in_callback = outer;
}

void Work::settle(c10::ivalue::Future& future) const {
  if (failure_) {
    future.setError(failure_);
  } else {
    future.markCompleted(lists_.empty() ? c10::IValue(outputs_) : c10::IValue(lists_));
  }
}

}  // namespace hccl::pytorch
