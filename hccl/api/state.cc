#include "hccl/api/state.h"

#include <pthread.h>

#include <atomic>
#include <utility>

#include "hccl/acl/process.h"
#include "hccl/acl/runtime.h"
#include "hccl/api/call_group.h"
#include "hccl/base/log.h"
#include "hccl/select/algorithms.h"

namespace hccl::api {

Status ClusterWorlds::reserve(const Rank& rank) {
  const MutexLock lock(mutex_);
  const auto at = worlds_.find(rank);
  if ((at == worlds_.end() || at->second.expired()) && joining_.count(rank) == 0) {
    worlds_.try_emplace(rank);  // so that record() needs no memory
    joining_.insert(rank);
    return {};
  }
  return Status(Code::kUnavail, "rank " + std::to_string(rank.second) + " of " + rank.first +
                                    " has joined already: HcclCommDestroy comes first");
}

Result<CommunicatorPtr> ClusterWorlds::record(const Rank& rank, Result<CommunicatorPtr> made) {
  const MutexLock lock(mutex_);
  joining_.erase(rank);
  if (made.ok()) worlds_[rank] = *made;
  return made;
}

namespace {

std::atomic<State*> living{nullptr};           // null before the first use, and after a fork
const State* of_parent = nullptr;              // in a forked child; never destroyed
constinit thread_local State* held = nullptr;  // the state during this thread's fork()

}  // namespace

const int State::handlers_ =
    ::pthread_atfork(&State::before_fork, &State::after_fork, &State::in_child);

void State::before_fork() {
  held = living.load();
  if (held != nullptr) held->worlds_.hold();
}

void State::after_fork() {
  if (held != nullptr) held->worlds_.release();
}

void State::in_child() {
  if (held != nullptr) held->worlds_.abandon();
  leave_call_group_of_parent();
  if (const State* const state = living.exchange(nullptr)) of_parent = state;
}

State::State(const State* parent) {
  if (parent == nullptr) return;
  communicators_.follow(parent->communicators_);
  fusions_.follow(parent->fusions_);
  requests_.follow(parent->requests_);
  memory_.follow(parent->memory_);
}

State& State::get() {
  State* const state = living.load(std::memory_order_acquire);
  return state != nullptr ? *state : make();
}

// Takes no lock, because a thread of the parent may hold any lock at a fork. If two threads make a
// state at once, only one state is kept.
State& State::make() {
  State* const fresh = new State(of_parent);
  acl::begin_use();
  State* other = nullptr;
  if (!living.compare_exchange_strong(other, fresh)) {
    delete fresh;
    return *other;
  }
  return *fresh;
}

void State::say_end() {
  State* const state = living.load();
  if (state != nullptr && !acl::copied()) state->communicators_.say_end();
}

Status State::read_environment() {
  if (config_) return {};
  HCCL_ASSIGN_OR_RETURN(Config read, Config::read());
  HCCL_RETURN_IF_ERROR(select::check_names(read));
  HCCL_RETURN_IF_ERROR(DeviceConfig::read().status());
  config_ = std::move(read);
  log_ = make_logger(config_->log_level, "api");
  for (const std::string& each : misspelt()) log_->warn("{}", each);
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
  if (log_ == nullptr && !read_environment().ok()) {
    log_ = make_logger(Config().log_level, "api");
  }
  return log_;
}

Result<CommunicatorPtr> State::open(join::Worlds::Joined joined, const Config& config,
                                    const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(auto line, std::move(joined));
  const Logger log = line->log();
  // If there is no device memory, collectives copy their data through staging buffers, and nothing
  // else changes.
  const auto heap = acl::Runtime::get().heap();
  if (!heap.ok()) log->warn("no device memory: {}", heap.status().message());
  return core::Communicator::world(std::move(line), name, config, log, siblings_,
                                   heap.ok() ? heap.value() : nullptr);
}

}  // namespace hccl::api
