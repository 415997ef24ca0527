#include "call.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "hccl/hccl_comm.h"

namespace hccl::python {
namespace {

using std::chrono::milliseconds;

// Short calls end before the first look for signals; the second keeps Ctrl-C prompt.
constexpr milliseconds kFirstLook(100);
constexpr milliseconds kNextLook(50);

void check(const Outcome& outcome) {
  if (outcome.code != HCCL_SUCCESS) raise_error(outcome.code, outcome.text);
}

// So many may have ended without the list being looked through.
constexpr std::size_t kFewCalls = 16;

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

Outcome call_now(const LibraryCall& call) {
  Outcome outcome;
  outcome.code = call();
  if (outcome.code != HCCL_SUCCESS) outcome.text = HcclGetLastErrorText();
  return outcome;
}

// ---- what is under way ----

Pending::Pending() : process_(::getpid()) {}

bool Pending::look(milliseconds patience) {
  if (outcome_) return true;
  if (process_ != ::getpid()) {
    raise_error(HCCL_E_UNAVAIL, "handle: was begun by process " + std::to_string(process_) +
                                    ", of which this one is a fork");
  }
  std::optional<Outcome> found;
  if (patience == milliseconds(0)) {
    found = outcome_within(patience);
  } else {
    nb::gil_scoped_release others_run;
    found = outcome_within(patience);
  }
  if (!found) return false;
  outcome_ = std::move(found);
  const Owners freed = std::exchange(kept_, {});
  return true;
}

bool Pending::wait(std::optional<double> limit) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  for (auto patience = kFirstLook;; patience = kNextLook) {
    Seconds left(patience);
    if (limit) left = Seconds(*limit) - (std::chrono::steady_clock::now() - begin);
    const auto next = std::chrono::ceil<milliseconds>(std::clamp<Seconds>(left, {}, patience));
    if (look(next)) break;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left.count() <= 0) return false;
  }
  check(*outcome_);
  return true;
}

bool Pending::done() { return look(milliseconds(0)); }

std::uint32_t Pending::source() {
  if (!done()) throw nb::value_error("handle: is not done yet, so its source is not known");
  check(*outcome_);
  return outcome_->source;
}

void Pending::abandon() {
  for (nb::object& each : kept_) static_cast<void>(each.release());
}

// ---- the worker ----

// A thread that makes one call after the other. It owns itself, so that it may be left behind, and
// holds nothing of Python.
class BlockingCalls::Worker : public std::enable_shared_from_this<Worker> {
 public:
  void start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are for the threads that Python knows
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::future<Outcome> begin(LibraryCall call) {
    std::packaged_task<Outcome()> task([call = std::move(call)] { return call_now(call); });
    std::future<Outcome> outcome = task.get_future();
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
    changed_.notify_one();
    return outcome;
  }

  /// Ends the thread once it has nothing to do.
  void stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::packaged_task<Outcome()> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Outcome()>> waiting_;
  bool stop_ = false;
};

namespace {

class QueuedCall final : public Pending {
 public:
  explicit QueuedCall(std::future<Outcome> outcome) : outcome_(outcome.share()) {}

 private:
  std::optional<Outcome> outcome_within(milliseconds patience) override {
    const std::shared_future<Outcome> outcome = outcome_;  // each thread waits with its own
    if (outcome.wait_for(patience) != std::future_status::ready) return std::nullopt;
    return outcome.get();
  }

  std::shared_future<Outcome> outcome_;
};

}  // namespace

// ---- the calls of a communicator ----

BlockingCalls::BlockingCalls() : process_(::getpid()) {}

BlockingCalls::~BlockingCalls() {
  // A fork has no worker, whose lock may have been held.
  const bool fork = process_ != ::getpid();
  if (worker_ != nullptr && !fork) worker_->stop();
  for (const auto& each : under_way_) {
    if (fork || !each->done()) each->abandon();
  }
}

// Memory that is freed may run Python code, and so other threads, which change the list.
bool BlockingCalls::under_way() {
  for (std::size_t i = 0; i < under_way_.size();) {
    const std::shared_ptr<Pending> each = under_way_[i];
    if (each->done()) {
      std::erase(under_way_, each);
    } else {
      ++i;
    }
  }
  return !under_way_.empty();
}

void BlockingCalls::watch(const std::shared_ptr<Pending>& pending) {
  if (under_way_.size() >= look_at_) {
    static_cast<void>(under_way());
    look_at_ = std::max(kFewCalls, 2 * under_way_.size());
  }
  under_way_.push_back(pending);
}

std::shared_ptr<Pending> BlockingCalls::begin(LibraryCall call, const Owners& owners) {
  if (worker_ == nullptr) {
    worker_ = std::make_shared<Worker>();
    worker_->start();
  }
  auto pending = std::make_shared<QueuedCall>(worker_->begin(std::move(call)));
  pending->keep(owners);
  watch(pending);
  return pending;
}

void BlockingCalls::wait_to_end(Pending& pending) {
  try {
    pending.wait(std::nullopt);
  } catch (nb::python_error&) {
    if (!pending.done()) interrupted_ = true;
    throw;
  }
}

void BlockingCalls::run(LibraryCall call, const Owners& owners) {
  if (on_main_thread() || under_way()) return wait_to_end(*begin(std::move(call), owners));
  Outcome outcome;
  {
    nb::gil_scoped_release others_run;
    outcome = call_now(call);
  }
  check(outcome);
}

void BlockingCalls::finish() {
  if (under_way() && worker_ != nullptr) wait_to_end(*begin([] { return HCCL_SUCCESS; }, {}));
}

}  // namespace hccl::python
