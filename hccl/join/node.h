// The node of this process in the control tree of one world. All ranks of the process in that world
// share it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/join/control.h"
#include "hccl/join/host.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// Any thread but the control thread may call. The first rank that joins finds the root, unless
/// this process began as the root.
class Node final : private ControlNode::Owner {
 public:
  /// The owner of one of the ranks.
  using Owner = ControlNode::Owner;
  struct Rank {
    std::uint32_t number = 0, size = 0;
    control::Attempt attempt = {};
  };

  /// Makes the node that begins as the root, without a rank. The node listens on info.address, at
  /// the first free port of the info.ports ports from info.port on. Port 0 means any free port.
  /// Sets info.port and info.ports. `claimants`: see Seek. `boot`: this host's boot id.
  static Result<std::shared_ptr<Node>> root(std::shared_ptr<Control> control, RootInfo& info,
                                            const Config& config, Logger log,
                                            control::Claimants claimants = {},
                                            Result<std::string> boot = boot_id());
  Node(std::shared_ptr<Control> control, const RootInfo& info)
      : control_(std::move(control)), info_(info) {}
  /// If the node has not left, the other processes consider it dead. A root that has refused all
  /// ranks stays for Config::connect_timeout, to refuse later ranks.
  ~Node() override;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const RootInfo& info() const { return info_; }
  /// Whether no further rank can join: an earlier rank could not join, or all ranks have gone.
  bool is_over();
  /// A rank joins; `owner` gets all later calls until remove(). `check` is called when the root is
  /// found, before the root knows of the rank. If `check` fails, the rank does not join; if this is
  /// the first rank, ranks that join meanwhile do not join either. The node uses the `config` and
  /// `boot` of the first rank.
  Status add(Owner& owner, const Rank& rank, const Config& config, const Logger& log,
             const std::function<Status()>& check, const Result<std::string>& boot);
  /// The rank leaves. Returns whether the rank is the last rank of this process: then the node
  /// leaves, too, and calls over() of the owner.
  bool leave(const Owner& owner);
  /// After this call the owner gets no more calls. If the rank has joined and has not left, the
  /// other processes consider it dead. If there is no memory to report the death, they consider all
  /// ranks of this process dead.
  void remove(const Owner& owner) noexcept;

  /// Closes the node's lines, so the other processes consider all ranks of this process dead. These
  /// ranks get the reason.
  void fail(const Status& why) noexcept { control_->fail(node_, why); }
  /// Calls one of Relay's functions in the control thread, soon.
  void say(std::function<control::Relay::Step(control::Relay&, control::Time)> what);
  /// Waits until all frames so far are in the sockets; see Control::await().
  void await() { control_->await(); }

  /// For a root without a rank: whether all ranks have gone, or have had the time to learn that
  /// they cannot join.
  bool finished() const;
  /// For a forked child: closes the child's copies of sockets that the control thread has not taken
  /// over.
  void abandon() HCCL_UNCHECKED;

 private:
  enum class State : std::uint8_t { kNew, kOpening, kOpen, kOver };
  struct Sharer {
    std::uint32_t rank;
    Owner* owner;
    bool brought = false, in = false, left = false;
  };
  Status open(const Rank& rank, const Config& config, const Logger& log,
              const std::function<Status()>& check, const Result<std::string>& boot);
  Status seek(const std::string& address, std::uint16_t root_port, const Rank& rank,
              const Config& config, const Logger& log, const std::string& boot);
  void bring(const Owner& owner, const Rank& rank, const Config& config);
  void cannot(std::uint32_t rank, const Status& why);
  void each(const std::function<void(Sharer&)>& tell);
  void close();

  void joined(const std::shared_ptr<const control::Roster>& roster, std::uint32_t node) override;
  void failed(const Status& why) override;
  void brought(const Owner* its) override;
  void refused(const Owner* its, const Status& why) override;
  void heard(const control::News& news) override;
  void answered(const control::Gatherings::Answer& answer) override;
  void late(const control::Gatherings::Late& late) override;
  void over() override;

  const std::shared_ptr<Control> control_;
  const RootInfo info_;
  std::chrono::nanoseconds patience_{0};  // of the root: the time for ranks to join
  std::atomic<Control::NodeId> node_{0};
  std::atomic<bool> failed_{false};
  std::atomic<control::Time> over_at_{control::Time::max()};

  std::shared_ptr<const control::Roster> roster_;  // from here on, for the control thread only
  std::uint32_t number_ = 0;                       // of this node
  control::RankSet others_;                        // other nodes that have not gone

  Mutex mutex_{LockLevel::kNode};
  Doorbell bell_;
  State state_ HCCL_GUARDED_BY(mutex_) = State::kNew;
  Status why_ HCCL_GUARDED_BY(mutex_);
  std::optional<Line> to_root_ HCCL_GUARDED_BY(mutex_);  // until the control thread takes the line
  std::vector<Sharer> ranks_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::join
