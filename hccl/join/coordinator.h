// The coordinator: one thread that admits ranks, sends the table of ranks, gathers exchanges, and
// tells all ranks which rank died, failed or left. It parses nothing before a rank is
// authenticated. It runs in the process that made the root info. Every rank is its client by a
// control line.
#pragma once

#include <atomic>
#include <memory>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/base/socket.h"
#include "hccl/base/thread.h"
#include "hccl/join/host.h"
#include "hccl/join/membership.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

class CoordinatorThread;

class Coordinator {
 public:
  /// Listens on info.address, at info.port or one of the ports after it (info.ports). Port 0 means
  /// any free port. Sets info.port.
  /// `claimants`: see Membership. `boot`: of this host.
  static Result<std::unique_ptr<Coordinator>> start(RootInfo& info, const Config& config,
                                                    Logger log, Claimants claimants = {},
                                                    Result<std::string> boot = boot_id());
  /// Ends the thread at once. Ranks that have not left report this process as dead; its own rank
  /// reports that it was cut off.
  ~Coordinator();

  /// Refuses all ranks with this reason, unless all have joined already.
  void give_up(const Status& why);
  const Uuid& id() const;

  /// Whether all ranks have left, or the world did not become complete in time.
  bool finished() const;

  /// Around a fork: between hold() and release() the thread changes nothing. Then the child calls
  /// abandon(), because its copies of the sockets would hide this process's death from the ranks.
  void hold();
  void release();
  void abandon();

 private:
  Coordinator();
  std::unique_ptr<CoordinatorThread> loop_;
  Thread thread_;
};

}  // namespace hccl::join
