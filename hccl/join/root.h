// The node that begins as the root of a world.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/join/control.h"
#include "hccl/join/host.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// In the process that made the root info. Any thread may call.
class Root {
 public:
  /// Listens on info.address, at info.port or one of the ports after it (info.ports). Port 0 means
  /// any free port. Sets info.port. `boot`: of this host.
  static Result<std::shared_ptr<Root>> start(std::shared_ptr<Control> control, RootInfo& info,
                                             const Config& config, Logger log,
                                             Result<std::string> boot = boot_id());
  /// The node has died, unless a rank has taken it.
  ~Root();
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  const Uuid& id() const { return id_; }
  /// For a rank of this process: the node is the rank's from then on. Nothing if it is taken.
  std::optional<Control::NodeId> take();
  bool taken() const { return taken_.load(std::memory_order_acquire); }
  /// Refuses all ranks with this reason, unless all have joined already.
  void give_up(const Status& why);

 private:
  Root(std::shared_ptr<Control> control, const Uuid& id) : control_(std::move(control)), id_(id) {}

  const std::shared_ptr<Control> control_;
  const Uuid id_;
  ControlNode::Owner nobody_;
  Control::NodeId node_ = 0;
  std::atomic<bool> taken_{false};
};

}  // namespace hccl::join
