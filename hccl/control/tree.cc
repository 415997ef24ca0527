#include "hccl/control/tree.h"

#include <algorithm>

namespace hccl::control {

std::optional<int> Seats::seat(int newcomer) {
  if (nodes_.size() < kFanOut) {
    nodes_[newcomer] = 1;
    return std::nullopt;
  }
  const auto fewest = std::ranges::min_element(
      nodes_, [](const auto& a, const auto& b) { return a.second < b.second; });
  ++fewest->second;
  return fewest->first;
}

// The announced number can be lower, because it does not include newcomers on their way.
void Seats::announced(int child, std::size_t nodes) {
  const auto at = nodes_.find(child);
  if (at != nodes_.end()) at->second = std::max(at->second, nodes);
}

bool Tree::heard(const Root& root) {
  if (root.node >= roster_->nodes.size() || !root.is_later_than(root_)) return false;
  ruled_ |= {root.node};
  passed_ = false;
  root_ = root;
  return true;
}

std::optional<std::uint32_t> Tree::successor() const {
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  const RankSet able = RankSet::range(0, nodes) - gone_ - RankSet{root_.node};
  const RankSet after = able - RankSet::range(0, root_.node);
  if (able.empty()) return std::nullopt;
  return after.empty() ? able.lowest() : after.lowest();
}

bool Tree::succeeds(std::uint32_t node) {
  if (rules() || successor() != node) return false;
  return heard({root_.epoch + 1, node});
}

std::vector<std::uint32_t> Tree::asks(std::uint32_t node) const {
  std::vector<std::uint32_t> all;
  if (!ruled_.contains(node)) all = roster_->ancestors(node);
  if (rules()) {
    all.push_back(root_.node);
  } else if (const auto next = successor()) {
    all.push_back(*next);
  }
  std::erase_if(all, [&](std::uint32_t each) {
    return each == node || !lives(each) || (passed_ && each == root_.node);
  });
  if (all.size() > 1 && std::find(all.begin(), all.end() - 1, all.back()) != all.end() - 1) {
    all.pop_back();  // the root is an ancestor, too
  }
  return all;
}

bool Tree::adopts(std::uint32_t parent, std::uint32_t child) const {
  if (!lives(parent) || parent == child || child == root_.node) return false;
  if (parent == root_.node || ruled_.contains(child)) return parent == root_.node;
  const auto above = roster_->ancestors(child);
  return std::ranges::find(above, parent) != above.end();
}

}  // namespace hccl::control
