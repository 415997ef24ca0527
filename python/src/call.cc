#include "call.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "hccl/hccl_comm.h"

namespace hccl::python {
namespace {

// Short calls end before the first look; the second keeps Ctrl-C prompt.
constexpr auto kFirstLook = std::chrono::milliseconds(100);
constexpr auto kNextLook = std::chrono::milliseconds(50);

struct Outcome {
  HcclResult code = HCCL_SUCCESS;
  std::string text;  // kept by the library for each thread, so it is taken on the calling one
};

Outcome call_now(const LibraryCall& call) {
  Outcome outcome{call(), {}};
  if (outcome.code != HCCL_SUCCESS) outcome.text = HcclGetLastErrorText();
  return outcome;
}

void check(const Outcome& outcome) {
  if (outcome.code != HCCL_SUCCESS) raise_error(outcome.code, outcome.text);
}

bool on_main_thread() { return ::gettid() == ::getpid(); }

}  // namespace

void raise_error(HcclResult code, const std::string& text) {
  const nb::object type = nb::module_::import_("hccl.errors").attr("HcclError");
  const nb::object error = type(static_cast<int>(code), text);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void check(HcclResult code) {
  if (code != HCCL_SUCCESS) raise_error(code, HcclGetLastErrorText());
}

// A thread that makes one call after the other. It owns itself, so that it may be left behind.
class BlockingCalls::Helper : public std::enable_shared_from_this<Helper> {
 public:
  void start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are for the threads that Python knows
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void begin(LibraryCall call) {
    std::lock_guard lock(mutex_);
    call_ = std::move(call);
    changed_.notify_all();
  }

  /// The outcome of the call that was begun; nothing if it takes longer than this.
  std::optional<Outcome> end(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return outcome_.has_value(); });
    return std::exchange(outcome_, std::nullopt);
  }

  void stop() {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || call_; });
      if (!call_) return;
      const LibraryCall call = std::exchange(call_, nullptr);
      lock.unlock();
      Outcome outcome = call_now(call);
      lock.lock();
      outcome_ = std::move(outcome);
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  LibraryCall call_;
  std::optional<Outcome> outcome_;
  bool stop_ = false;
};

BlockingCalls::~BlockingCalls() {
  if (helper_ != nullptr) helper_->stop();
}

void BlockingCalls::run(LibraryCall call, std::vector<nb::object> kept) {
  if (!on_main_thread()) {
    Outcome outcome;
    {
      nb::gil_scoped_release others_run;
      outcome = call_now(call);
    }
    return check(outcome);
  }
  if (helper_ == nullptr) {
    helper_ = std::make_shared<Helper>();
    helper_->start();
  }
  helper_->begin(std::move(call));
  for (auto patience = kFirstLook;; patience = kNextLook) {
    std::optional<Outcome> outcome;
    {
      nb::gil_scoped_release others_run;
      outcome = helper_->end(patience);
    }
    if (outcome) return check(*outcome);
    if (PyErr_CheckSignals() != 0) {
      interrupted_ = true;
      helper_->stop();  // once the call returns, if it ever does
      for (nb::object& each : kept) static_cast<void>(each.release());
      throw nb::python_error();
    }
  }
}

}  // namespace hccl::python
