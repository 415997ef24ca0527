// One node of the control tree, with its sockets: it joins by a Seek, and then lives as a Relay.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "hccl/control/relay.h"
#include "hccl/control/seek.h"
#include "hccl/join/lines.h"

namespace hccl::join {

/// The part of a roster that describes this process: its host, and one node with these ranks.
/// `boot`: this host's boot id.
control::Roster own_part(const std::string& address, std::uint16_t port, control::RankSet ranks,
                         const std::string& boot, const control::Attempt& attempt = {});

/// No function blocks. Only the control thread may call; a forked child may call only abandon().
class ControlNode {
 public:
  using Time = control::Time;
  /// Gets the node's news for its ranks, on the control thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The roster, and the number of this node in it.
    virtual void joined(const std::shared_ptr<const control::Roster>&, std::uint32_t) {}
    /// The node could not join, and now only refuses processes that come later. Or the node has
    /// joined, but cannot go on.
    virtual void failed(const Status&) {}
    /// bring() took effect for the rank with this owner.
    virtual void brought(const Owner*) {}
    /// bring() came too late for the rank with this owner. The status: success if the other ranks
    /// had joined, otherwise the reason why they could not.
    virtual void refused(const Owner*, const Status&) {}
    virtual void heard(const control::News&) {}
    virtual void answered(const control::Gatherings::Answer&) {}
    virtual void late(const control::Gatherings::Late&) {}
    /// The node has left, or all other nodes believe that it has died. The node does nothing more.
    virtual void over() {}
  };
  /// `own`, `size`, `agreement`, `root`, `patience`, `claimants`: see Seek.
  struct Args {
    control::Roster own;
    std::uint32_t size = 0;
    std::string agreement = {};
    std::optional<control::Seek::Place> root = {};
    std::optional<Line> to_root = {};  ///< the line on which the root was found
    std::chrono::nanoseconds patience{};
    std::chrono::nanoseconds peer_timeout{};
    control::Claimants claimants = {};
  };

  ControlNode(Args args, std::unique_ptr<Lines> lines, Owner& owner);

  /// Does all work that is due. Call it at next(), and after lines().ready().
  void turn();
  Time next() const;
  Lines& lines() { return *lines_; }

  /// Calls one of Relay's functions for a rank. No effect unless is_in().
  void say(const std::function<control::Relay::Step(control::Relay&, Time)>& what);
  /// This process cannot join; if this process is the root, no process can.
  void give_up(const Status& why);
  /// The node does nothing more, and closes its lines.
  void fail(const Status& why) noexcept;
  bool is_in() const {
    return relay_ != nullptr && relay_->state() != control::Relay::State::kOver;
  }
  /// Whether the neighbours have acknowledged all frames of this node.
  bool is_heeded() const;
  /// One more rank of this process joins; see Seek. `its` only identifies the rank to the node's
  /// owner; the object may have ended.
  void bring(const Owner* its, std::uint32_t rank, std::uint32_t size, const std::string& agreement,
             const control::Attempt& attempt);
  /// After this call the owner gets no more calls.
  void detach() { owner_ = &nobody_; }
  void abandon() { lines_->abandon(); }

 private:
  void handle(const Lines::Event& event, Time now);
  void take(const Lines::Event& frame, Time now);
  void apply(const control::Seek::Step& step, Time now);
  void apply(const control::Relay::Step& step);
  void send(const std::vector<control::Relay::Out>& outs);
  void settle();

  std::chrono::nanoseconds peer_timeout_;
  std::unique_ptr<Lines> lines_;
  Owner nobody_;
  Owner* owner_;
  bool root_;  // this node is the first root
  control::Seek seek_;
  std::optional<Line> to_root_;
  std::unique_ptr<control::Relay> relay_;  // once the node is in
  // By the number of a dial: the node that the Relay dials, or nothing if the Seek dials.
  std::map<Lines::LineId, std::optional<std::uint32_t>> dials_;
  bool told_ = false;  // the owner has got failed() or over()
  bool over_ = false;
};

}  // namespace hccl::join
