// How a communicator fails: once, for good, with one reason on all its ranks, and on record.
#include <unistd.h>

#include <algorithm>

#include "hccl/core/communicator.h"

namespace hccl::core {
namespace {

// A peer's closed connection may be the echo of another rank's death or mistake, and who was
// missing at a timeout one rank alone does not know: the hub, which sees all of them, gets this
// long to say. It usually takes a millisecond; only a connection that broke between two living
// ranks costs it all.
constexpr std::chrono::seconds kVerdictTime{2};

}  // namespace

void Communicator::on_failure(const Uuid& scope, const Status& why) {
  if (scope != Uuid{} && scope != id_) return;
  if (scope == Uuid{} && why.culprit() >= 0 &&
      std::find(ranks_.begin(), ranks_.end(), why.culprit()) == ranks_.end()) {
    return;
  }
  if (!failed_.raise(why)) return;
  verdict_.ring();
  if (transport::Mesh* mesh = open_mesh_.load()) mesh->abort(why);
  if (exec::LocalEngine* local = open_local_.load()) local->wake();
}

Status Communicator::fail(Status why) {
  if (!failed_.raised()) {
    // World ranks travel; the text keeps the numbers of this communicator, so it names it.
    const int culprit = why.culprit() >= 0 ? ranks_[static_cast<std::size_t>(why.culprit())] : -1;
    why = Status(why.code(), name_ + ": " + why.message(), culprit);
    if (why.code() == Code::kRemote) await_verdict(culprit);
    if (why.code() == Code::kTimeout) {
      control_->report(id_, why);
      await_verdict(-1);
    }
    if (failed_.raise(why)) control_->report(id_, why);
  }
  record_end();
  return failed_.reason();
}

Status Communicator::failed_in(const Call& call, std::uint64_t sequence, Status status) {
  status = fail(std::move(status));
  // The other texts name the operation already.
  if (status.code() != Code::kRemote) return status;
  return status.with_context(words(envelope(call, sequence, 0)));
}

void Communicator::await_verdict(int suspect) {
  static_cast<void>(hccl::wait([&] { return suspect >= 0 && control_->has_left(suspect); },
                               Deadline::after(kVerdictTime), &failed_, verdict_,
                               WaitPolicy{.spin = std::chrono::nanoseconds(0)}));
}

// A call that came after the failure: the first one shows what the rank wanted next.
Status Communicator::refused(const Envelope& call) {
  if (!recorded_) {
    recorder_.end(recorder_.begin(call, "not begun"), failed_.reason().code());
    record_end();
  }
  return failed_.reason();
}

Status Communicator::refused_suspended() const {
  return Status(Code::kSuspending, name_ + " is suspended: resume it, then repeat the operation");
}

void Communicator::record_end() {
  if (recorded_) return;
  recorded_ = true;
  const Status reason = failed_.reason();
  log_->error("{}: {}", name_, reason.message());
  if (config_.flight_recorder_dir == "off") return;
  const std::string directory =
      config_.flight_recorder_dir.empty() ? "/tmp" : config_.flight_recorder_dir;
  const std::string path = directory + "/hccl-flight-" + short_id() + "-rank" +
                           std::to_string(rank_) + "-" + std::to_string(::getpid()) + ".json";
  const Status written = recorder_.dump(path, name_, rank_, size(), reason);
  log_->error("{}: last operations: {}", name_, written.ok() ? path : written.message());
}

}  // namespace hccl::core
