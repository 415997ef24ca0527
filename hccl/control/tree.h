// The shape of the control tree: which child of a node gets a newcomer, which node is the root, and
// which nodes an orphan asks for a new place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hccl/control/rank_set.h"
#include "hccl/control/roster.h"

namespace hccl::control {

inline constexpr std::size_t kFanOut = 8;  ///< children that join at one node

/// The children of one node while processes join. For one thread.
class Seats {
 public:
  /// Seats a newcomer. Nothing: the newcomer is a child of this node now. Else: the child that the
  /// newcomer must ask, which is the one with the fewest nodes below.
  std::optional<int> seat(int newcomer);
  /// A child has announced the number of nodes in its subtree, itself included.
  void announced(int child, std::size_t nodes);
  void gone(int child) { nodes_.erase(child); }
  std::size_t children() const { return nodes_.size(); }

 private:
  std::map<int, std::size_t> nodes_;  // by child: nodes in its subtree, and newcomers on their way
};

/// The root that a node obeys. Each root that takes over has a higher epoch than the one before.
struct Root {
  std::uint32_t epoch = 1;
  std::uint32_t node = 0;
  /// Of two roots all nodes obey the later one: the higher epoch, then the lower node.
  bool is_later_than(const Root& other) const {
    return epoch != other.epoch ? epoch > other.epoch : node < other.node;
  }
  bool operator==(const Root&) const = default;
};

/// The tree after joining, as one node knows it. Nodes become the root in the order of their
/// numbers, and the lowest follows the highest. So a root determines its successor. A node's parent
/// is an ancestor by the roster, or a node that is or was the root. A node that was the root may
/// have its own ancestors below it, so it asks only the new root. Therefore parents make no circle,
/// no matter how many nodes end. For one thread.
class Tree {
 public:
  explicit Tree(std::shared_ptr<const Roster> roster) : roster_(std::move(roster)), ruled_{0} {}

  /// Nodes that died or left; the set only grows. RankSet holds numbers of nodes here.
  void gone(const RankSet& nodes) { gone_ |= nodes; }
  const RankSet& gone() const { return gone_; }
  /// Nodes that are or were the root.
  const RankSet& ruled() const { return ruled_; }
  bool lives(std::uint32_t node) const { return !gone_.contains(node); }
  const Root& root() const { return root_; }
  /// Another node obeys `root`. If `root` is later than this node's root, obeys it and returns
  /// true.
  bool heard(const Root& root);
  /// Passes over the root, which does not answer. The root stays a plain node.
  void pass_over() { passed_ = true; }
  /// Whether the root lives and was not passed over.
  bool rules() const { return lives(root_.node) && !passed_; }
  /// The next living node after the root, if there is one.
  std::optional<std::uint32_t> successor() const;
  /// Whether the node must take over from the root; if so, obeys the node as the new root.
  bool succeeds(std::uint32_t node);
  /// The nodes that an orphan asks, all at once: living ancestors, the nearest first, then the root
  /// or, if the root is gone or was passed over, its successor. Never the node itself. A node that
  /// was the root asks only the last of these.
  std::vector<std::uint32_t> asks(std::uint32_t node) const;
  /// Whether a node may become the parent of another node.
  bool adopts(std::uint32_t parent, std::uint32_t child) const;

 private:
  std::shared_ptr<const Roster> roster_;
  Root root_;
  RankSet gone_, ruled_;  // died or left; is or was the root
  bool passed_ = false;
};

}  // namespace hccl::control
