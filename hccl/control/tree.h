// The shape of the control tree: which child of a node gets a newcomer, which node is the root, and
// which nodes an orphan asks to become its parent.
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

/// The children of one node while processes join. Not thread-safe.
class Seats {
 public:
  /// Seats a newcomer. Returns nothing if the newcomer is a child of this node now, else the child
  /// that the newcomer must ask: the child with the fewest nodes below it.
  std::optional<int> seat(int newcomer);
  /// A child has announced the number of nodes in its subtree, the child included.
  void announced(int child, std::size_t nodes);
  void gone(int child) { nodes_.erase(child); }
  std::size_t children() const { return nodes_.size(); }

 private:
  std::map<int, std::size_t> nodes_;  // by child: nodes in its subtree, with newcomers on their way
};

/// The root that a node obeys. Each later root has a higher epoch.
struct Root {
  std::uint32_t epoch = 1;
  std::uint32_t node = 0;
  /// All nodes obey the later of two roots: the root with the higher epoch or, if the epochs are
  /// equal, with the lower node number.
  bool is_later_than(const Root& other) const {
    return epoch != other.epoch ? epoch > other.epoch : node < other.node;
  }
  bool operator==(const Root&) const = default;
};

/// The tree after joining, as one node knows it. Nodes become the root in the order of their
/// numbers; the lowest number follows the highest. So each root has one successor, which all nodes
/// can compute. A node's parent is an ancestor in the roster, or a node that is or was the root.
/// The ancestors of a former root may be below that node now, so a former root asks only the new
/// root. So the parents never form a circle, however many nodes end. Not thread-safe.
class Tree {
 public:
  explicit Tree(std::shared_ptr<const Roster> roster) : roster_(std::move(roster)), ruled_{0} {}

  /// Nodes that died or left; the set only grows. Here a RankSet holds numbers of nodes.
  void gone(const RankSet& nodes) { gone_ |= nodes; }
  const RankSet& gone() const { return gone_; }
  /// Nodes that are or were the root.
  const RankSet& ruled() const { return ruled_; }
  bool lives(std::uint32_t node) const { return !gone_.contains(node); }
  const Root& root() const { return root_; }
  /// Another node obeys `root`. If `root` is later than this node's root, this node obeys `root`,
  /// too, and the call returns true.
  bool heard(const Root& root);
  /// Passes over the root, which does not answer. The root stays in the tree as a plain node.
  void pass_over() { passed_ = true; }
  /// Whether the root lives and was not passed over.
  bool rules() const { return lives(root_.node) && !passed_; }
  /// The next living node after the root, if there is one.
  std::optional<std::uint32_t> successor() const;
  /// Whether `node` must take over from the root. If so, makes `node` the new root.
  bool succeeds(std::uint32_t node);
  /// The nodes that an orphan asks, all at once: living ancestors, the nearest first, then the root
  /// or, if the root is gone or was passed over, its successor. Never `node` itself. If `node` was
  /// the root, only the root or its successor.
  std::vector<std::uint32_t> asks(std::uint32_t node) const;
  /// Whether a node may become the parent of another node.
  bool adopts(std::uint32_t parent, std::uint32_t child) const;

 private:
  std::shared_ptr<const Roster> roster_;
  Root root_;
  RankSet gone_, ruled_;  // nodes that died or left; nodes that are or were the root
  bool passed_ = false;
};

}  // namespace hccl::control
