#include "call.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gil.h"
#include "hccl/hccl_comm.h"

namespace hccl::python {
namespace {

using std::chrono::milliseconds;

// The first check for signals comes late, so that short calls end without any. Later checks follow
// at shorter intervals, so that Ctrl-C acts quickly.
constexpr milliseconds kFirstLook(100);
constexpr milliseconds kNextLook(50);

void check(const Outcome& outcome) {
  if (outcome.code != HCCL_SUCCESS) raise_error(outcome.code, outcome.text);
}

// watch() searches the list for ended calls only if it has at least this many calls.
constexpr std::size_t kFewCalls = 16;

void run_here(const LibraryCall& call) {
  Outcome outcome;
  {
    const WithoutGil others_run;
    outcome = call_now(call);
  }
  check(outcome);
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

Outcome call_now(const LibraryCall& call) {
  Outcome outcome;
  outcome.code = call();
  if (outcome.code != HCCL_SUCCESS) outcome.text = HcclGetLastErrorText();
  return outcome;
}

// ---- operations under way ----

PendingRequest::PendingRequest(HcclRequest request, Owners owners)
    : request_(request), kept_(std::move(owners)), process_(::getpid()) {}

PendingRequest::~PendingRequest() { static_cast<void>(HcclRequestFree(request_)); }

// Returns the outcome if the call ends within `patience`. If `patience` is 0, does not wait.
// Otherwise the caller must not hold the GIL.
std::optional<Outcome> PendingRequest::outcome_within(milliseconds patience) const {
  if (patience.count() > 0) static_cast<void>(HcclRequestWait(request_, patience.count(), nullptr));
  bool over = false;
  if (HcclRequestTest(request_, &over) == HCCL_SUCCESS && !over) return std::nullopt;
  std::uint32_t source = 0;
  Outcome outcome = call_now([&] { return HcclRequestWait(request_, 0, &source); });
  outcome.source = source;
  return outcome;
}

bool PendingRequest::look(milliseconds patience) {
  if (outcome_) return true;
  if (process_ != ::getpid()) {
    raise_error(HCCL_E_UNAVAIL, "handle: was begun by process " + std::to_string(process_) +
                                    ", of which this one is a fork");
  }
  std::optional<Outcome> found;
  if (patience == milliseconds(0)) {
    found = outcome_within(patience);
  } else {
    const WithoutGil others_run;
    found = outcome_within(patience);
  }
  if (!found) return false;
  outcome_ = std::move(found);
  const Owners freed = std::exchange(kept_, {});
  return true;
}

bool PendingRequest::wait(std::optional<double> limit) {
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

bool PendingRequest::done() { return look(milliseconds(0)); }

std::uint32_t PendingRequest::source() {
  if (!done()) throw nb::value_error("handle: is not done yet, so its source is not known");
  check(*outcome_);
  return outcome_->source;
}

void PendingRequest::abandon() {
  for (nb::object& each : kept_) static_cast<void>(each.release());
}

// ---- the calls of a communicator ----

BlockingCalls::BlockingCalls(HcclComm comm) : comm_(comm), process_(::getpid()) {}

BlockingCalls::~BlockingCalls() {
  for (const auto& each : under_way_) {
    if (process_ != ::getpid() || !each->done()) each->abandon();
  }
}

// Freeing a PendingRequest may run Python code, and the GIL may pass to threads that change the
// list. So the loop uses an index, not an iterator.
bool BlockingCalls::under_way() {
  for (std::size_t i = 0; i < under_way_.size();) {
    const std::shared_ptr<PendingRequest> each = under_way_[i];
    if (each->done()) {
      std::erase(under_way_, each);
    } else {
      ++i;
    }
  }
  return !under_way_.empty();
}

std::shared_ptr<PendingRequest> BlockingCalls::watch(HcclRequest request, const Owners& owners) {
  auto pending = std::make_shared<PendingRequest>(request, owners);
  if (under_way_.size() >= look_at_) {
    static_cast<void>(under_way());
    look_at_ = std::max(kFewCalls, 2 * under_way_.size());
  }
  under_way_.push_back(pending);
  return pending;
}

// The library's thread owns the call, which refers to no Python object. The PendingRequest owns
// the Python objects.
std::shared_ptr<PendingRequest> BlockingCalls::begin_on(HcclComm comm, LibraryCall call,
                                                        const Owners& owners) {
  auto kept = std::make_unique<LibraryCall>(std::move(call));
  HcclRequest request = nullptr;
  check(HcclSubmit([](void* self) { return (*static_cast<LibraryCall*>(self))(); }, comm, false,
                   [](void* self, HcclResult) { delete static_cast<LibraryCall*>(self); },
                   kept.get(), &request));
  static_cast<void>(kept.release());
  return watch(request, owners);
}

void BlockingCalls::wait_to_end(PendingRequest& pending) {
  try {
    pending.wait(std::nullopt);
  } catch (nb::python_error&) {
    if (!pending.done()) interrupted_ = true;
    throw;
  }
}

void BlockingCalls::run(LibraryCall call, const Owners& owners) {
  if ((!direct_ && on_main_thread()) || under_way())
    return wait_to_end(*begin(std::move(call), owners));
  run_here(call);
}

void BlockingCalls::run_last(LibraryCall call) {
  finish();
  if (on_main_thread()) return wait_to_end(*begin_on(nullptr, std::move(call), {}));
  run_here(call);
}

void BlockingCalls::finish() {
  if (under_way() && comm_ != nullptr) wait_to_end(*begin([] { return HCCL_SUCCESS; }, {}));
}

}  // namespace hccl::python
