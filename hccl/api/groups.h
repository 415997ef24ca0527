// The groups of hcom.h, by name, and their split strategies. The world is the group
// HCCL_WORLD_GROUP.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/api/communicators.h"
#include "hccl/base/mutex.h"
#include "hccl/hccl_types.h"
#include "split/strategy.h"

namespace hccl::api {

/// Every member is safe to use from any thread.
class Groups {
 public:
  explicit Groups(Communicators& communicators) : communicators_(communicators) {}

  /// Makes a communicator the world, and creates the groups of this rank that were requested
  /// before. If `owned`, clear() also removes the world's handle. A failure changes nothing.
  /// kUnavail: a world exists already. Collective.
  Status adopt_world(CommunicatorPtr world, HcclComm handle, bool owned);
  /// Creates a group, or stores the request until a world exists. The errors are those of
  /// HcomCreateGroup.
  Status create(const std::string& name, std::vector<int> ranks);
  /// Tells the other ranks of the world, if there is one, that a call of HcomCreateGroup was
  /// refused. Returns `why`.
  Status refuse(const Status& why) const;
  /// Destroys a group. kPara: the group is the world. kNotFound: no such group. kAgain: the group
  /// is in use.
  Status destroy(const std::string& name);
  /// Removes groups, requests and strategies. Returns the world, which the caller must leave, or
  /// null if the program owns the world. kAgain: a group is in use, and nothing has changed.
  /// kUnavail: there was no world.
  Result<CommunicatorPtr> clear();

  /// Whether a group of this name exists. A stored request is not yet a group.
  bool contains(const std::string& name) const;
  Result<CommunicatorPtr> get(const std::string& name) const;
  Result<HcclComm> handle(const std::string& name) const;
  /// Returns the name of the group with this handle; empty if there is none.
  std::string name_of(HcclComm handle) const;

  split::StrategyTable& strategies() { return strategies_; }

 private:
  struct Group {
    CommunicatorPtr communicator;
    HcclComm handle = nullptr;
    bool owned = true;
  };
  using Ranks = std::vector<int>;

  using Names = std::set<std::string, std::less<>>;  // a search allocates nothing
  Result<Group> open(const Group& in, const std::string& name, const Ranks& ranks);
  Result<Group> take_name(const std::string& name, const Ranks& ranks);
  Status close(const Group& group);
  Names::iterator reserved(std::string_view name) {
    const MutexLock lock(mutex_);
    return opening_.find(name);
  }
  Result<Group> find(const std::string& name) const HCCL_REQUIRES(mutex_);

  /// Removes a name from opening_ at the end of this object's life.
  class Opening {
   public:
    Opening(Groups& groups, std::string_view name)
        : groups_(groups), name_(groups.reserved(name)) {}
    ~Opening() {
      const MutexLock lock(groups_.mutex_);
      groups_.opening_.erase(name_);
    }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    Groups& groups_;
    const Names::iterator name_;
  };

  Communicators& communicators_;
  mutable Mutex mutex_{LockLevel::kGroups};
  std::map<std::string, Group> groups_ HCCL_GUARDED_BY(mutex_);
  Names opening_ HCCL_GUARDED_BY(mutex_);  // names of groups that are being made
  std::map<std::string, Ranks> waiting_ HCCL_GUARDED_BY(mutex_);  // requested before the world
  split::StrategyTable strategies_;
};

}  // namespace hccl::api
