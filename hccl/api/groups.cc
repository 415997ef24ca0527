#include "hccl/api/groups.h"

#include <algorithm>

#include "hccl/base/caught.h"
#include "hccl/hcom.h"

namespace hccl::api {
namespace {

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

Status world_exists() {
  return Status(Code::kUnavail, "the world exists already: HcomDestroy comes first");
}

}  // namespace

Status Groups::adopt_world(CommunicatorPtr world, HcclComm handle, bool owned) {
  std::map<std::string, Ranks> waiting;
  {
    const MutexLock lock(mutex_);
    waiting = waiting_;
    if (groups_.count(HCCL_WORLD_GROUP) != 0) return world_exists();
    if (!opening_.insert(HCCL_WORLD_GROUP).second) return world_exists();
  }
  const Opening opening(*this, HCCL_WORLD_GROUP);
  const Group adopted{std::move(world), handle, owned};
  // The groups are made in the order of their names, which is the same on all ranks.
  std::map<std::string, Group> made;
  Status failure = guarded([&]() -> Status {
    for (const auto& [name, ranks] : waiting) {
      // HCCL's rule: of the groups requested before the world, a rank creates only those that
      // include the rank.
      if (!std::binary_search(ranks.begin(), ranks.end(), adopted.communicator->rank())) continue;
      Group& place = made[name];  // before open(): storing an open group must not fail
      auto group = open(adopted, name, ranks);
      if (!group.ok()) {
        return group.status().with_context("group " + quoted(name) + ", asked for beforehand");
      }
      place = std::move(*group);
    }
    made[HCCL_WORLD_GROUP] = adopted;
    return {};
  });
  if (!failure.ok()) {
    for (const auto& [name, group] : made) {
      if (group.communicator != nullptr) static_cast<void>(close(group));
    }
    return failure;
  }
  const MutexLock lock(mutex_);
  groups_.merge(made);
  waiting_.clear();
  return {};
}

Status Groups::create(const std::string& name, std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  auto world = take_name(name, ranks);
  if (!world.ok()) return refuse(world.status());
  if (world->communicator == nullptr) return {};
  const Opening opening(*this, name);
  auto group = open(*world, name, ranks);
  if (!group.ok()) return group.status();
  try {
    const MutexLock lock(mutex_);
    groups_[name] = std::move(*group);
  } catch (...) {
    static_cast<void>(close(*group));
    throw;
  }
  return {};
}

// Reserves the name, and returns the world for the group that the caller opens. Before a world
// exists, stores the request and returns no world.
Result<Groups::Group> Groups::take_name(const std::string& name, const Ranks& ranks) {
  if (name == HCCL_WORLD_GROUP) {
    return Status(Code::kPara, "group " + quoted(name) + " is the world's name");
  }
  if (ranks.empty()) return Status(Code::kPara, "rankNum is 0");
  if (const auto twice = std::adjacent_find(ranks.begin(), ranks.end()); twice != ranks.end()) {
    return Status(Code::kPara, "rankIds has " + std::to_string(*twice) + " twice");
  }
  const MutexLock lock(mutex_);
  if (groups_.count(name) != 0 || waiting_.count(name) != 0 || opening_.count(name) != 0) {
    return Status(Code::kPara, "group " + quoted(name) + " exists already");
  }
  if (opening_.count(HCCL_WORLD_GROUP) != 0) {
    return Status(Code::kAgain, "the world is being initialized, please try again later");
  }
  const auto at = groups_.find(HCCL_WORLD_GROUP);
  if (at == groups_.end()) {
    waiting_[name] = ranks;
    return Group();
  }
  opening_.insert(name);
  return at->second;
}

Status Groups::refuse(const Status& why) const {
  if (why.code() != Code::kPara && why.code() != Code::kPtr) return why;
  const auto world = get(HCCL_WORLD_GROUP);
  if (world.ok()) (*world)->refused_group("HcomCreateGroup: " + why.message());
  return why;
}

Result<Groups::Group> Groups::open(const Group& in, const std::string& name, const Ranks& ranks) {
  core::Communicator& world = *in.communicator;
  const auto refused = [&](const std::string& why) {
    world.refused_group("group " + quoted(name) + ": " + why);
    return Status(Code::kPara, why);
  };
  const std::string has = ", the world has " + std::to_string(world.size()) + " ranks";
  if (ranks.size() > static_cast<std::size_t>(world.size())) {
    return refused("rankNum is " + std::to_string(ranks.size()) + has);
  }
  if (ranks.front() < 0 || ranks.back() >= world.size()) {
    return refused("rankIds has " + std::to_string(ranks.back()) + has);
  }
  // The other ranks get no error, because a program may make the calls for all groups on all ranks.
  if (!std::binary_search(ranks.begin(), ranks.end(), world.rank())) {
    return Status(Code::kNotFound,
                  "rankIds does not have the caller, rank " + std::to_string(world.rank()));
  }
  // The count belongs to the handle, because the program may adopt a world again that has made
  // groups before.
  const std::uint64_t instance = communicators_.next_instance(in.handle, name, ranks);
  HCCL_ASSIGN_OR_RETURN(CommunicatorPtr made, world.group(name, ranks, instance));
  Group group{made, nullptr, true};
  group.handle = communicators_.add(made);
  return group;
}

// Removes the group's handle, then leaves the communicator. If the handle cannot be removed,
// nothing changes.
Status Groups::close(const Group& group) {
  HCCL_ASSIGN_OR_RETURN(const CommunicatorPtr closed, communicators_.take(group.handle, idle));
  try {
    if (!closed->membership().is_world()) closed->leave();  // a world leaves last
  } catch (...) {  // NOLINT(bugprone-empty-catch): leave() has told the other ranks
  }
  return {};
}

Status Groups::destroy(const std::string& name) {
  if (name == HCCL_WORLD_GROUP) {
    return Status(Code::kPara, "group " + quoted(name) + " is the world: HcomDestroy ends it");
  }
  Group group;  // outlives the lock: closing a mesh may take time
  const MutexLock lock(mutex_);
  if (waiting_.erase(name) != 0) return {};
  HCCL_ASSIGN_OR_RETURN(group, find(name));
  HCCL_RETURN_IF_ERROR(close(group));
  groups_.erase(name);
  return {};
}

Result<CommunicatorPtr> Groups::clear() {
  std::map<std::string, Group> gone;
  const MutexLock lock(mutex_);
  for (const auto& [name, group] : groups_) {
    HCCL_RETURN_IF_ERROR(idle(*group.communicator).with_context("group " + quoted(name)));
    if (!group.owned) continue;
    HCCL_RETURN_IF_ERROR(communicators_.unused(group.handle).with_context("group " + quoted(name)));
  }
  // A call that has just begun on a group can stop the removal half way. The next clear() continues
  // from there. The world is removed last.
  while (!groups_.empty()) {
    auto at = groups_.begin();
    if (at->first == HCCL_WORLD_GROUP && groups_.size() > 1) ++at;
    if (at->second.owned) {
      const Status closed = close(at->second);
      if (!closed.ok()) return closed.with_context("group " + quoted(at->first));
    }
    gone.insert(groups_.extract(at));
  }
  waiting_.clear();
  strategies_.clear();
  const auto world = gone.find(HCCL_WORLD_GROUP);
  if (world == gone.end()) return Status(Code::kUnavail, "there is no world to destroy");
  return world->second.owned ? world->second.communicator : nullptr;
}

bool Groups::contains(const std::string& name) const {
  const MutexLock lock(mutex_);
  return groups_.count(name) != 0;
}

Result<Groups::Group> Groups::find(const std::string& name) const {
  const auto at = groups_.find(name);
  if (at != groups_.end()) return at->second;
  return Status(
      Code::kNotFound,
      "group " + quoted(name) + " does not exist" +
          (groups_.empty() ? ": there is no world before HcomInit…"
                           : " on this rank: it has not made the group, or is no member"));
}

Result<CommunicatorPtr> Groups::get(const std::string& name) const {
  const MutexLock lock(mutex_);
  HCCL_ASSIGN_OR_RETURN(Group group, find(name));
  return std::move(group.communicator);
}

Result<HcclComm> Groups::handle(const std::string& name) const {
  const MutexLock lock(mutex_);
  HCCL_ASSIGN_OR_RETURN(const Group group, find(name));
  return group.handle;
}

std::string Groups::name_of(HcclComm handle) const {
  const MutexLock lock(mutex_);
  for (const auto& [name, group] : groups_) {
    if (group.handle == handle) return name;
  }
  return {};
}

}  // namespace hccl::api
