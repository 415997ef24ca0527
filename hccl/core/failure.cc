#include "hccl/core/failure.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "hccl/base/thread.h"

namespace hccl::core {
namespace {

// The longest wait for the root's verdict. A connection may close because of another rank's death
// or mistake, and at a timeout a single rank does not know which ranks are absent. The root sees
// all ranks, so all ranks use the root's verdict. The verdict takes two seconds if a connection
// between living ranks broke and only one of these ranks noticed.
constexpr std::chrono::seconds kVerdictTime{4};
// The most records of this user that are kept in the directory: enough for a job with many ranks,
// or for a few jobs.
constexpr std::size_t kRecordsKept = 256;

}  // namespace

void Failure::interrupt_with(Interrupt interrupt) {
  const MutexLock lock(interrupt_mutex_);
  interrupt_ = std::move(interrupt);
  if (raised()) interrupt_(reason(), Status::kNobody);
}

void Failure::on_failure(const Uuid& scope, const Status& why) {
  if (scope == messages_) {
    const MutexLock lock(interrupt_mutex_);
    if (end_) end_(why);
    return;
  }
  const auto family = [](const Uuid& id) { return view(id).substr(0, id.size() - kScopeBytes); };
  if (scope != Uuid{} && family(scope) != family(is_.id)) return;
  if (scope != Uuid{} || why.culprit() < 0) {
    raise(why);
    return;
  }
  const auto dead = std::find(is_.ranks.begin(), is_.ranks.end(), why.culprit());
  if (dead != is_.ranks.end()) raise(why, static_cast<int>(dead - is_.ranks.begin()));
}

bool Failure::raise(const Status& why, int dead) {
  if (!flag_.raise(why)) return false;
  verdict_.ring();
  const MutexLock lock(interrupt_mutex_);
  if (interrupt_) interrupt_(why, dead);
  if (end_) end_(why);
  return true;
}

void Failure::abort(const Status& why) {
  if (raise(why)) is_.control->report(is_.id, why);
}

void Failure::summons_with(std::function<void()> open, std::function<void()> start_messages,
                           std::function<void(const Status&)> end_messages) {
  const MutexLock lock(interrupt_mutex_);
  open_ = std::move(open);
  start_ = std::move(start_messages);
  end_ = std::move(end_messages);
  if (raised()) end_(reason());
  if (summoned_to_operations_) open_();
  if (summoned_to_messages_) start_();
}

void Failure::on_summons(const Uuid& scope) {
  if (scope != messages_ && scope != operations_) return;
  const MutexLock lock(interrupt_mutex_);
  (scope == messages_ ? summoned_to_messages_ : summoned_to_operations_) = true;
  const auto& answer = scope == messages_ ? start_ : open_;
  if (answer) answer();
}

// The culprit is sent as a world rank. The text has rank numbers of this communicator, so the text
// names the communicator.
Status Failure::named(const Status& why) const {
  const int culprit = why.culprit() >= 0 ? is_.of_world(why.culprit()) : -1;
  return {why.code(), is_.name + ": " + why.message(), culprit};
}

Status Failure::settle(Status why) {
  const NotCancelled not_cancelled;
  if (raised()) return reason();
  why = named(why);
  const bool known_alone = why.code() != Code::kRemote && why.code() != Code::kTimeout;
  if (!known_alone) {
    is_.control->report(is_.id, why);
    await_verdict();
  }
  if (flag_.raise(why) && known_alone) is_.control->report(is_.id, why);
  return reason();
}

Status Failure::fail(Status why) {
  why = settle(std::move(why));
  write_record();
  return why;
}

Status Failure::fail(Status why, const Envelope& call) {
  why = fail(std::move(why));
  // The texts of other failures name the operation already.
  return why.code() == Code::kRemote ? why.with_context(to_string(call)) : why;
}

Status Failure::known(const Status& why, const Envelope& call) {
  abort(named(why));
  return fail(why, call);
}

Status Failure::thrown() noexcept {
  const Status why = settle_thrown();
  return guarded([&] { return raised() ? fail(why) : why; });
}

Status Failure::settle_thrown() noexcept {
  Status why = caught();
  try {
    why = Status(why.code(), "rank " + std::to_string(is_.rank) + ": " + why.message(), is_.rank);
    return settle(why);
  } catch (...) {
    try {
      abort(why);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the flag is raised
    }
  }
  return why;
}

Status Failure::refuse(const Envelope& call) {
  if (!recorded_) {
    const NotCancelled not_cancelled;
    recorder_.end(recorder_.begin(call, "not begun"), reason().code());
    write_record();
  }
  return reason();
}

void Failure::await_verdict() {
  const Waiter waiter{
      .deadline = Deadline::after(kVerdictTime), .abort = &flag_, .policy = kSleepAtOnce};
  static_cast<void>(waiter.until([] { return false; }, verdict_));
}

void Failure::write_record() {
  if (recorded_) return;
  recorded_ = true;
  const Status why = reason();
  is_.log->error("{}: {}", is_.name, why.message());
  const std::string& directory = is_.config.flight_recorder_dir;  // "off" or empty: no record
  if (directory == "off" || directory.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // dump() reports a missing directory
  FlightRecorder::keep_latest(directory, kRecordsKept - 1);
  const std::string path = directory + "/" + std::string(FlightRecorder::kPrefix) +
                           short_name(view(is_.id)) + "-rank" + std::to_string(is_.rank) + "-" +
                           std::to_string(::getpid()) + ".json";
  const Status written = recorder_.dump(path, is_.name, is_.rank, is_.size(), why);
  is_.log->error("{}: last operations: {}", is_.name, written.ok() ? path : written.message());
}

}  // namespace hccl::core
