// All process-wide state of the library: configuration, hubs, handles, groups. Nothing below
// hccl/api has any. Every member is safe to use from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/core/communicator.h"
#include "hccl/core/hub.h"
#include "hccl/core/rank_table.h"
#include "hccl/hccl_types.h"
#include "split/strategy.h"

namespace hccl::api {

using CommunicatorPtr = std::shared_ptr<core::Communicator>;

/// Communicators by handle: a destroyed or invented handle is an error, never a crash.
class Handles {
 public:
  HcclComm add(CommunicatorPtr communicator);
  Result<CommunicatorPtr> get(HcclComm handle) const;
  /// Takes the handle out of use. kAgain while another thread uses the communicator.
  Result<CommunicatorPtr> take(HcclComm handle);

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<HcclComm, CommunicatorPtr> all_;
};

/// HCOM's groups by name, and their split strategies. The world is the group HCCL_WORLD_GROUP.
class Groups {
 public:
  Status adopt_world(CommunicatorPtr world, HcclComm handle);
  Status create(const std::string& name, std::vector<int> ranks);
  Status destroy(const std::string& name);
  /// Ends all groups; gives the world's handle.
  Result<HcclComm> clear();
  bool initialized() const;
  bool contains(const std::string& name) const;
  Result<CommunicatorPtr> get(const std::string& name) const;
  Result<HcclComm> handle(const std::string& name) const;
  split::StrategyTable& strategies() { return strategies_; }

 private:
  struct Group {
    CommunicatorPtr communicator;
    HcclComm handle = nullptr;
  };
  Status create_now(const std::string& name, const std::vector<int>& ranks);

  mutable std::mutex mutex_;
  std::map<std::string, Group> groups_;
  std::map<std::string, std::uint64_t> instances_;   // how often a name was created
  std::map<std::string, std::vector<int>> waiting_;  // created before the world
  split::StrategyTable strategies_;
};

class State {
 public:
  static State& get();

  /// The environment, read at the first call that needs it.
  Result<Config> config();
  Handles& handles() { return handles_; }
  Groups& groups() { return groups_; }

  /// Starts a hub in this process for a world that ranks will join.
  Status start_hub(core::RootInfo& info, const Config& config);
  /// Joins the world that `info` describes.
  Result<CommunicatorPtr> join(const core::RootInfo& info, int size, int rank, const Config& config,
                               const std::string& name);
  /// Counts the joins by launcher, so that one program may join several times.
  int next_launch();

 private:
  std::mutex mutex_;
  std::optional<Config> config_;
  int launches_ = 0;
  std::vector<std::unique_ptr<core::Hub>> hubs_;
  Handles handles_;
  Groups groups_;
};

}  // namespace hccl::api
