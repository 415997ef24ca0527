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

// A closed connection may be a consequence of another rank's death or mistake. At a timeout one
// rank alone does not know which ranks are absent. The root sees all ranks, so all ranks use
// its verdict. The verdict takes two seconds if a connection between living ranks broke and only
// one of them saw the end.
constexpr std::chrono::seconds kVerdictTime{4};
// The number of this user's records in the directory: enough for a job with many ranks, or for a
// few jobs.
constexpr std::size_t kRecordsKept = 256;

}  // namespace

Failure::Failure(join::World& line, const Uuid& id, const Uuid& messages, std::string name,
                 const std::vector<int>& ranks, int rank, std::string directory, Logger log,
                 FlightRecorder& recorder)
    : line_(line),
      id_(id),
      messages_(messages),
      name_(std::move(name)),
      ranks_(ranks),
      rank_(rank),
      directory_(std::move(directory)),
      log_(std::move(log)),
      recorder_(recorder) {}

void Failure::interrupt_with(Interrupt interrupt) {
  const MutexLock lock(interrupt_mutex_);
  interrupt_ = std::move(interrupt);
  if (raised()) interrupt_(reason(), Status::kNobody);
}

void Failure::on_failure(const Uuid& scope, const Status& why) {
  if (scope == messages_) {
    const MutexLock lock(interrupt_mutex_);
    if (in_vain_) in_vain_(why);
    return;
  }
  const auto family = [](const Uuid& id) { return view(id).substr(0, id.size() - kScopeBytes); };
  if (scope != Uuid{} && family(scope) != family(id_)) return;
  if (scope != Uuid{} || why.culprit() < 0) {
    raise(why);
    return;
  }
  const auto dead = std::find(ranks_.begin(), ranks_.end(), why.culprit());
  if (dead != ranks_.end()) raise(why, static_cast<int>(dead - ranks_.begin()));
}

bool Failure::raise(const Status& why, int dead) {
  if (!flag_.raise(why)) return false;
  verdict_.ring();
  const MutexLock lock(interrupt_mutex_);
  if (interrupt_) interrupt_(why, dead);
  return true;
}

void Failure::abort(const Status& why) {
  if (raise(why)) line_.report(id_, why);
}

void Failure::summoned_with(std::function<void()> start,
                            std::function<void(const Status&)> in_vain) {
  const MutexLock lock(interrupt_mutex_);
  in_vain_ = std::move(in_vain);
  start_ = std::move(start);
  if (summoned_) start_();
}

void Failure::on_summons(const Uuid& scope) {
  if (scope != messages_) return;
  const MutexLock lock(interrupt_mutex_);
  summoned_ = true;
  if (start_) start_();
}

Status Failure::fail(Status why) {
  const NotCancelled not_cancelled;
  if (!raised()) {
    // Culprits are sent as world ranks. The text has rank numbers of this communicator, so it names
    // the communicator.
    const int culprit = why.culprit() >= 0 ? ranks_[static_cast<std::size_t>(why.culprit())] : -1;
    why = Status(why.code(), name_ + ": " + why.message(), culprit);
    const bool known_alone = why.code() != Code::kRemote && why.code() != Code::kTimeout;
    if (!known_alone) {
      line_.report(id_, why);
      await_verdict();
    }
    if (flag_.raise(why) && known_alone) line_.report(id_, why);
  }
  write_record();
  return reason();
}

Status Failure::fail(Status why, const Envelope& call) {
  why = fail(std::move(why));
  // The texts of other failures name the operation already.
  return why.code() == Code::kRemote ? why.with_context(to_string(call)) : why;
}

Status Failure::thrown() noexcept {
  Status why = caught();
  try {
    why = Status(why.code(), "rank " + std::to_string(rank_) + ": " + why.message(), rank_);
    return fail(why);
  } catch (...) {
    try {
      abort(why);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the flag is up
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
  log_->error("{}: {}", name_, why.message());
  if (directory_ == "off" || directory_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);  // dump() tells if there is none
  FlightRecorder::keep_latest(directory_, kRecordsKept - 1);
  const std::string path = directory_ + "/" + std::string(FlightRecorder::kPrefix) +
                           short_name(view(id_)) + "-rank" + std::to_string(rank_) + "-" +
                           std::to_string(::getpid()) + ".json";
  const Status written = recorder_.dump(path, name_, rank_, static_cast<int>(ranks_.size()), why);
  log_->error("{}: last operations: {}", name_, written.ok() ? path : written.message());
}

}  // namespace hccl::core
