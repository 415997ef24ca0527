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

// No other thread is in the middle of a change of what abandon() reads.
void State::before_fork() {
  mutex_.lock();
  for (const auto& each : coordinators_) each->hold();
}

void State::after_fork() {
  for (const auto& each : coordinators_) each->release();
  mutex_.unlock();
}

// A forked child leaves what the parent has alone, whatever it does: it destroys none of it when it
// ends, and joins no thread, as it has none of them. It closes its copies of the sockets by which
// others hear of the parent's death.
void State::abandon() {
  for (const auto& each : lines_) {
    if (const auto line = each.lock()) line->abandon();
  }
  for (const auto& each : coordinators_) each->abandon();
  after_fork();
  communicators_.abandon();
  fusions_.abandon();
  requests_.abandon();
  coordinators_of_parent_ = new auto(std::move(coordinators_));
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

State::~State() {
  say_end();
  living = nullptr;
}

void State::say_end() {
  if (living == nullptr || ::getpid() != living->process_) return;
  living->communicators_.say_end();
}

State& State::get() {
  static State state;
  return state;
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

Status State::start_coordinator(join::RootInfo& info, const Config& config) {
  HCCL_ASSIGN_OR_RETURN(
      auto coordinator,
      join::Coordinator::start(info, config, make_logger(config.log_level, "coordinator")));
  const MutexLock lock(mutex_);
  // A coordinator whose ranks have all left has ended its thread; it is destroyed here.
  std::erase_if(coordinators_, [](const auto& each) { return each->finished(); });
  coordinators_.push_back(std::move(coordinator));
  return {};
}

int State::next_join(const std::string& job) {
  const MutexLock lock(mutex_);
  return joins_[job]++;
}

Result<CommunicatorPtr> State::join(const join::RootInfo& info, int size, int rank,
                                    const Config& config, const std::string& name) {
  const Logger log = make_logger(config.log_level, "rank " + std::to_string(rank));
  HCCL_ASSIGN_OR_RETURN(auto control, join::ControlLine::join(info, size, rank, config, log));
  {
    const MutexLock lock(mutex_);
    std::erase_if(lines_, [](const auto& each) { return each.expired(); });
    lines_.push_back(control);
  }
  // Without device memory, collectives stage their data; nothing else changes.
  const auto heap = acl::Runtime::get().heap();
  if (!heap.ok()) log->warn("no device memory: {}", heap.status().message());
  return core::Communicator::world(std::move(control), name, config, log,
                                   heap.ok() ? heap.value() : nullptr);
}

}  // namespace hccl::api
