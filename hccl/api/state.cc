#include "hccl/api/state.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "hccl/acl/runtime.h"
#include "hccl/base/log.h"
#include "hccl/select/algorithms.h"

namespace hccl::api {

Status ClusterWorlds::reserve(const Rank& rank) {
  const MutexLock lock(mutex_);
  const auto at = worlds_.find(rank);
  if ((at == worlds_.end() || at->second.expired()) && joining_.insert(rank).second) return {};
  return Status(Code::kUnavail, "rank " + std::to_string(rank.second) + " of " + rank.first +
                                    " has joined already: HcclCommDestroy comes first");
}

Result<CommunicatorPtr> ClusterWorlds::keep(const Rank& rank, Result<CommunicatorPtr> made) {
  const MutexLock lock(mutex_);
  joining_.erase(rank);
  if (made.ok()) worlds_[rank] = *made;
  return made;
}

namespace {
State* living = nullptr;  // for the handler of fork()
}  // namespace

void State::before_fork() {
  mutex_.lock();
  worlds_.hold();
}

void State::after_fork() {
  worlds_.release();
  mutex_.unlock();
}

// A forked child leaves what the parent has alone, whatever it does: it destroys none of it when it
// ends.
void State::abandon() {
  worlds_.abandon();
  mutex_.unlock();
  communicators_.abandon();
  fusions_.abandon();
  requests_.abandon();
}

State::State() {
  living = this;
  process_ = ::getpid();
  static_cast<void>(::pthread_atfork(
      [] {
        if (living != nullptr) living->before_fork();
      },
      [] {
        if (living != nullptr) living->after_fork();
      },
      [] {
        if (living != nullptr) living->abandon();
      }));
}

void State::say_end() {
  if (living == nullptr || ::getpid() != living->process_) return;
  living->communicators_.say_end();
}

State& State::get() {
  static State* const state = new State;
  return *state;
}

Status State::read_environment() {
  if (config_) return {};
  HCCL_ASSIGN_OR_RETURN(Config read, Config::read());
  HCCL_RETURN_IF_ERROR(select::check_names(read));
  config_ = std::move(read);
  return {};
}

Result<Config> State::config() {
  const MutexLock lock(mutex_);
  HCCL_RETURN_IF_ERROR(read_environment());
  return *config_;
}

Status State::set_deterministic(Deterministic value) {
  {
    const MutexLock lock(mutex_);
    HCCL_RETURN_IF_ERROR(read_environment());
    if (config_->deterministic_is_given) return {};
    config_->deterministic = value;
  }
  communicators_.set_deterministic(value);
  return {};
}

Logger State::log() {
  const MutexLock lock(mutex_);
  if (log_ == nullptr) {
    const bool known = read_environment().ok();
    log_ = make_logger(known ? config_->log_level : Config().log_level, "api");
  }
  return log_;
}

Result<CommunicatorPtr> State::open(join::Worlds::Joined joined, const Config& config,
                                    const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(auto line, std::move(joined));
  const Logger log = line->log();
  // Without device memory, collectives stage their data; nothing else changes.
  const auto heap = acl::Runtime::get().heap();
  if (!heap.ok()) log->warn("no device memory: {}", heap.status().message());
  return core::Communicator::world(std::move(line), name, config, log,
                                   heap.ok() ? heap.value() : nullptr);
}

}  // namespace hccl::api
