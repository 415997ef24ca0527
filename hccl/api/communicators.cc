#include "hccl/api/communicators.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "hccl/acl/runtime.h"
#include "hccl/api/state.h"

namespace hccl::api {

Status idle(core::Communicator& communicator) {
  if (!communicator.operations().queue().busy() && !communicator.operations().requests()->working())
    return {};
  return Status(Code::kAgain, "comm is in use, please try again later");
}

Communicators::Claim::~Claim() {
  if (owner_ == nullptr) return;
  const MutexLock lock(owner_->mutex_);
  owner_->claims_.erase(key_);
}

void* Communicators::add(const Object& communicator, About about) {
  void* handle = nullptr;
  try {
    Entry entry;
    entry.name = communicator->membership().name;
    entry.rank = communicator->rank();
    entry.maker = std::this_thread::get_id();
    entry.communicator = communicator;
    if (about.device < 0) about.device = acl::Runtime::get().devices().current_device();
    entry.family = about.family;
    entry.about = std::move(about);
    // No other thread knows the handle before this function returns, so none can remove the handle.
    handle = Handles::add(communicator);
    enter(handle, std::move(entry));
  } catch (...) {
    if (handle != nullptr) static_cast<void>(take(handle, [](const auto&) { return Status(); }));
    communicator->leave();
    throw;
  }
  return handle;
}

void Communicators::enter(const void* handle, Entry entry) {
  const MutexLock lock(mutex_);
  // Registers the exit handler once for each transport. The transport has already registered its
  // handler, so this handler runs first. A group that is not open has no name of a transport.
  const std::string transport(entry.communicator.lock()->operations().transport());
  if (!transport.empty() && transports_.insert(transport).second) {
    static_cast<void>(std::atexit(State::say_end));
  }
  entry.made = ++made_;
  entries_.emplace(handle, std::move(entry));
}

void Communicators::forget(const void* handle) {
  const MutexLock lock(mutex_);
  entries_.erase(handle);
}

Result<Communicators::Claim> Communicators::claim(const std::string& name,
                                                  const std::string& family, int rank) {
  const MutexLock lock(mutex_);
  const auto taken = [&](const auto& each) {
    const Entry& entry = each.second;
    return entry.name == name && (entry.family != family || entry.rank == rank);
  };
  if (std::any_of(entries_.begin(), entries_.end(), taken) ||
      std::any_of(claims_.begin(), claims_.end(), taken)) {
    return Status(Code::kPara, "a communicator with the name \"" + name + "\" exists already");
  }
  Entry entry;
  entry.name = name;
  entry.family = family;
  entry.rank = rank;
  claims_.emplace(++made_, std::move(entry));
  return Claim(this, made_);
}

Result<HcclComm> Communicators::find(const std::string& name) const {
  const int device = acl::Runtime::get().devices().current_device();
  const auto me = std::this_thread::get_id();
  const MutexLock lock(mutex_);
  const void* best = nullptr;
  std::tuple<bool, bool, std::uint64_t> best_rank;
  for (const auto& [handle, entry] : entries_) {
    if (entry.name != name) continue;
    const std::tuple rank(device >= 0 && entry.about.device == device, entry.maker == me,
                          entry.made);
    if (best != nullptr && rank < best_rank) continue;
    best = handle;
    best_rank = rank;
  }
  if (best == nullptr) {
    return Status(Code::kNotFound, "no communicator has the name \"" + name + "\"");
  }
  return const_cast<HcclComm>(best);
}

Result<Communicators::About> Communicators::about(HcclComm handle) const {
  const MutexLock lock(mutex_);
  const auto at = entries_.find(handle);
  if (at != entries_.end()) return at->second.about;
  return Status(Code::kPara, "comm is no handle, or was destroyed already");
}

std::uint64_t Communicators::next_instance(HcclComm world, const std::string& name,
                                           std::vector<int> ranks) {
  const MutexLock lock(mutex_);
  return entries_[world].groups.next(name, std::move(ranks));
}

void Communicators::set_deterministic(Deterministic value) {
  const MutexLock lock(mutex_);
  for (auto& [handle, entry] : entries_) {
    if (entry.about.own_deterministic) continue;
    if (const auto communicator = entry.communicator.lock()) {
      communicator->settings().deterministic = value;
    }
  }
}

void Communicators::set_deterministic(HcclComm handle, Deterministic value) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return;
  found->second.about.own_deterministic = true;
  if (const auto communicator = found->second.communicator.lock()) {
    communicator->settings().deterministic = value;
  }
}

void Communicators::say_end() {
  const MutexLock lock(mutex_);
  for (auto& [handle, entry] : entries_) {
    const auto communicator = entry.communicator.lock();
    if (communicator == nullptr) continue;
    try {
      communicator->end_of_program();
    } catch (...) {  // NOLINT(bugprone-empty-catch): other ranks take this rank for dead
    }
  }
}

}  // namespace hccl::api
