// The hub: where the ranks of a world meet. One thread that admits ranks (authenticated before
// anything is parsed), hands out the table, gathers their exchanges, and tells everybody who died,
// failed or left. It lives in the process that made the root info; every rank, that one's too, is a
// client (control.h).
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/base/socket.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

class CoordinatorThread;

class Coordinator {
 public:
  /// Listens on info.address, at info.port or one of the ports after it (info.ports), 0 = any free
  /// one. Gives the hub and fills in info.port.
  static Result<std::unique_ptr<Coordinator>> start(RootInfo& info, const Config& config,
                                                    Logger log);
  /// Ends the thread, whoever is still there: ranks that have not left will call its process dead.
  ~Coordinator();

  /// All ranks have left, or nobody came in time: the hub has no more to do.
  bool finished() const;

 private:
  Coordinator();
  std::unique_ptr<CoordinatorThread> loop_;
  std::thread thread_;
};

}  // namespace hccl::join
