#include "hccl/api/state.h"

#include <algorithm>
#include <cstdlib>

#include "hccl/core/interfaces.h"
#include "hccl/hcom.h"

namespace hccl::api {

// ---- handles ----

HcclComm Handles::add(CommunicatorPtr communicator) {
  std::unique_lock lock(mutex_);
  HcclComm handle = communicator.get();
  all_[handle] = std::move(communicator);
  return handle;
}

Result<CommunicatorPtr> Handles::get(HcclComm handle) const {
  if (handle == nullptr) return Status(Code::kPtr, "comm is null");
  std::shared_lock lock(mutex_);
  const auto at = all_.find(handle);
  if (at == all_.end()) {
    return Status(Code::kPara, "comm is not a communicator, or was destroyed already");
  }
  return at->second;
}

Result<CommunicatorPtr> Handles::take(HcclComm handle) {
  if (handle == nullptr) return Status(Code::kPtr, "comm is null");
  std::unique_lock lock(mutex_);
  const auto at = all_.find(handle);
  if (at == all_.end()) {
    return Status(Code::kPara, "comm is not a communicator, or was destroyed already");
  }
  if (at->second->busy()) {
    return Status(Code::kAgain, "comm is in use, please try again later");
  }
  CommunicatorPtr communicator = std::move(at->second);
  all_.erase(at);
  return communicator;
}

// ---- groups ----

Status Groups::adopt_world(CommunicatorPtr world, HcclComm handle) {
  std::map<std::string, std::vector<int>> waiting;
  const int rank = world->rank();
  {
    std::lock_guard lock(mutex_);
    if (groups_.count(HCCL_WORLD_GROUP) != 0) {
      return Status(Code::kUnavail, "the world exists already: HcomDestroy comes first");
    }
    groups_[HCCL_WORLD_GROUP] = {std::move(world), handle};
    waiting.swap(waiting_);
  }
  for (const auto& [name, ranks] : waiting) {
    // HCCL: of the groups asked for beforehand, those are created that the rank is in.
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    HCCL_RETURN_IF_ERROR(create(name, ranks));
  }
  return {};
}

Status Groups::create(const std::string& name, std::vector<int> ranks) {
  if (name == HCCL_WORLD_GROUP)
    return Status(Code::kPara, "the name \"" + name + "\" is the world's");
  if (ranks.empty()) return Status(Code::kPara, "rankNum is 0");
  std::sort(ranks.begin(), ranks.end());
  if (const auto twice = std::adjacent_find(ranks.begin(), ranks.end()); twice != ranks.end()) {
    return Status(Code::kPara, "rankIds has " + std::to_string(*twice) + " twice");
  }
  {
    std::lock_guard lock(mutex_);
    if (groups_.count(name) != 0 || waiting_.count(name) != 0) {
      return Status(Code::kPara, "group \"" + name + "\" exists already");
    }
    if (groups_.count(HCCL_WORLD_GROUP) == 0) {
      waiting_[name] = std::move(ranks);
      return {};
    }
  }
  return create_now(name, ranks);
}

Status Groups::create_now(const std::string& name, const std::vector<int>& ranks) {
  CommunicatorPtr world;
  std::uint64_t instance = 0;
  {
    std::lock_guard lock(mutex_);
    world = groups_.at(HCCL_WORLD_GROUP).communicator;
    instance = instances_[name]++;
  }
  if (ranks.front() < 0 || ranks.back() >= world->size()) {
    return Status(Code::kPara, "rankIds has " + std::to_string(ranks.back()) + ", the world has " +
                                   std::to_string(world->size()) + " ranks");
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), world->rank())) {
    return Status(Code::kNotFound,
                  "rankIds does not have the caller, rank " + std::to_string(world->rank()));
  }
  HCCL_ASSIGN_OR_RETURN(CommunicatorPtr made, world->group(name, ranks, instance));
  const HcclComm handle = State::get().handles().add(made);
  std::lock_guard lock(mutex_);
  groups_[name] = {std::move(made), handle};
  return {};
}

Status Groups::destroy(const std::string& name) {
  if (name == HCCL_WORLD_GROUP) {
    return Status(Code::kPara, "the world is destroyed by HcomDestroy");
  }
  Group group;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.erase(name) != 0) return {};
    const auto at = groups_.find(name);
    if (at == groups_.end()) return Status(Code::kNotFound, "there is no group \"" + name + "\"");
    group = at->second;
  }
  HCCL_RETURN_IF_ERROR(State::get().handles().take(group.handle).status());
  std::lock_guard lock(mutex_);
  groups_.erase(name);
  return {};
}

Result<HcclComm> Groups::clear() {
  std::map<std::string, Group> gone;
  HcclComm world = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto at = groups_.find(HCCL_WORLD_GROUP);
    if (at == groups_.end()) return Status(Code::kUnavail, "there is no world to destroy");
    world = at->second.handle;
    groups_.erase(at);
    gone.swap(groups_);
    waiting_.clear();
    instances_.clear();
    strategies_.clear();
  }
  for (auto& [name, group] : gone) static_cast<void>(State::get().handles().take(group.handle));
  return world;
}

bool Groups::initialized() const { return contains(HCCL_WORLD_GROUP); }

bool Groups::contains(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return groups_.count(name) != 0;
}

Result<CommunicatorPtr> Groups::get(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(name);
  if (at != groups_.end()) return at->second.communicator;
  return Status(Code::kNotFound, groups_.empty()
                                     ? "the world is not initialized: HcomInit… comes first"
                                     : "there is no group \"" + name + "\"");
}

Result<HcclComm> Groups::handle(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(name);
  if (at != groups_.end()) return at->second.handle;
  return Status(Code::kNotFound, "there is no group \"" + name + "\"");
}

// ---- the process ----

State& State::get() {
  static State state;
  return state;
}

Result<Config> State::config() {
  std::lock_guard lock(mutex_);
  if (!config_) {
    HCCL_ASSIGN_OR_RETURN(config_,
                          Config::read([](const char* name) { return std::getenv(name); }));
  }
  return *config_;
}

Status State::start_hub(core::RootInfo& info, const Config& config) {
  HCCL_ASSIGN_OR_RETURN(auto hub,
                        core::Hub::start(info, config, make_logger(config.log_level, "hub")));
  std::lock_guard lock(mutex_);
  // Hubs whose ranks have all left have ended their thread; this is when they are buried.
  std::erase_if(hubs_, [](const auto& each) { return each->finished(); });
  hubs_.push_back(std::move(hub));
  return {};
}

int State::next_launch() {
  std::lock_guard lock(mutex_);
  return launches_++;
}

Result<CommunicatorPtr> State::join(const core::RootInfo& info, int size, int rank,
                                    const Config& config, const std::string& name) {
  const Logger log = make_logger(config.log_level, "rank " + std::to_string(rank));
  HCCL_ASSIGN_OR_RETURN(auto control, core::Control::join(info, size, rank, config, log));
  return core::Communicator::world(std::move(control), name, config, log);
}

}  // namespace hccl::api
