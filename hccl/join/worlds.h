// How a process joins worlds: by root info, by its launcher, or by a rank table.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/mutex.h"
#include "hccl/control/claims.h"
#include "hccl/join/join_numbers.h"
#include "hccl/join/node.h"
#include "hccl/join/rank_table.h"
#include "hccl/join/root_info.h"
#include "hccl/join/world.h"

namespace hccl::join {

struct Launch;

/// One object in each process, with the roots that run here. Every member is safe to use from any
/// thread.
class Worlds {
 public:
  using Joined = Result<std::shared_ptr<World>>;

  /// Makes root info with a fresh secret and id, and starts its root in this process.
  /// `one_host`: all ranks are on this host.
  Result<RootInfo> make_root(const Config& config, bool one_host);

  /// Joins the world that `info` describes.
  Joined join(const RootInfo& info, int size, int rank, const Config& config);
  /// Joins the ranks that the launcher started (see detect_launcher()). Without a launcher, joins a
  /// world of one rank.
  Joined join_by_launcher(const Config& config);
  /// Joins the ranks of a rank table: of a file, or of the text of a table. `identify` is this
  /// rank's RANK_ID (see own_rank()).
  Joined join_by_file(const std::string& path, const std::string& identify, const Config& config);
  Joined join_by_text(const std::string& text, const std::string& identify, const Config& config);

  // Around a fork: hold() before it, release() after it in the parent, abandon() in the child. The
  // child closes its copies of the sockets, because they would hide the parent's death from others.
  // The child does not use this object again.
  void hold() HCCL_UNCHECKED;
  void release() HCCL_UNCHECKED;
  void abandon() HCCL_UNCHECKED;

 private:
  struct Job;

  std::shared_ptr<Fd> open_unshared(const std::function<Fd()>& make);
  Status start_root(RootInfo& info, const Config& config, control::Claimants claimants = {});
  std::shared_ptr<Control> control() HCCL_REQUIRES(mutex_);
  std::shared_ptr<Node> node_of(const RootInfo& info);
  Result<std::string> boot();
  Result<std::shared_ptr<Fd>> claim_rank(const std::string& job, int size, int rank);
  Joined enter(const RootInfo& info, const Job& job, const Config& config);
  Joined join_by_pmix(const Launch& launch, const Config& config);
  Joined join_by_variables(const Launch& launch, const Config& config);
  Joined join_by_table(const RankTable& table, const std::string& identify, const Config& config);
  Joined join_known(Job job, const Config& config);
  Joined join_between_hosts(const Job& job, const Config& config);
  Joined join_inside_host(const Job& job, const Config& config);
  Result<RootInfo> fresh_root(const Config& config, const std::string& address,
                              const control::Claimants& claimants = {});
  Status contest(const RootInfo& info, const Job& job, Config config);

  Mutex mutex_{LockLevel::kWorlds};
  std::shared_ptr<Control> control_ HCCL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Node>> roots_ HCCL_GUARDED_BY(mutex_);   // roots without a rank
  std::map<Uuid, std::weak_ptr<Node>> nodes_ HCCL_GUARDED_BY(mutex_);  // by world
  std::vector<std::weak_ptr<Fd>> unshared_ HCCL_GUARDED_BY(mutex_);
  std::string boot_ HCCL_GUARDED_BY(mutex_);  // of this host; "": not read yet
  JoinNumbers joins_{mutex_};                 // by job and rank
};

}  // namespace hccl::join
