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
class Root final : public ControlNode::Owner {
 public:
  /// Listens on info.address, at info.port or one of the ports after it (info.ports). Port 0 means
  /// any free port. Sets info.port. `claimants`: see Seek. `boot`: of this host.
  static Result<std::shared_ptr<Root>> start(std::shared_ptr<Control> control, RootInfo& info,
                                             const Config& config, Logger log,
                                             control::Claimants claimants = {},
                                             Result<std::string> boot = boot_id());
  /// The node has died, unless a rank has taken it.
  ~Root() override;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  const Uuid& id() const { return id_; }
  /// For a rank of this process: the node is the rank's from then on. Nothing if it is taken.
  std::optional<Control::NodeId> take();
  /// Whether a rank has taken the node, or all ranks have gone, or all have had the time to hear
  /// that they cannot join.
  bool finished() const;
  /// Refuses all ranks with this reason, unless all have joined already.
  void give_up(const Status& why);

 private:
  Root(std::shared_ptr<Control> control, const Uuid& id, std::chrono::nanoseconds patience)
      : control_(std::move(control)), id_(id), patience_(patience) {}
  void joined(const std::shared_ptr<const control::Roster>& roster) override;
  void failed(const Status& why) override;
  void heard(const control::News& news) override;
  void over() override { over_at_ = control::Time{}; }

  const std::shared_ptr<Control> control_;
  const Uuid id_;
  const std::chrono::nanoseconds patience_;
  Control::NodeId node_ = 0;
  control::RankSet others_;  // nodes that have not gone; the control thread's
  std::atomic<bool> taken_{false};
  std::atomic<control::Time> over_at_{control::Time::max()};
};

}  // namespace hccl::join
