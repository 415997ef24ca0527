// In which order ranks fold into a chunk of Way::kChain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hccl::exec::host {

/// As many chains as groups of ranks, and each chain goes through all groups: chain c begins with
/// group c and ends with the one before it. So all groups work at once, and data leaves a group
/// once in each chain. A round is a chunk of every chain.
class Chains {
 public:
  /// One group, in this order.
  explicit Chains(int places) : turns_(static_cast<std::size_t>(places)), begins_{0} {
    for (int place = 0; place < places; ++place) turns_[static_cast<std::size_t>(place)] = place;
  }
  explicit Chains(const std::vector<std::vector<int>>& groups) {
    for (const auto& group : groups) {
      begins_.push_back(turns_.size());
      turns_.insert(turns_.end(), group.begin(), group.end());
    }
  }

  std::size_t number() const { return begins_.size(); }
  /// All places, group by group.
  const std::vector<int>& turns() const { return turns_; }
  std::size_t turn_of(int place) const {
    return static_cast<std::size_t>(std::find(turns_.begin(), turns_.end(), place) -
                                    turns_.begin());
  }
  /// The group of a turn.
  std::size_t group_of(std::size_t turn) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), turn) -
                                    begins_.begin()) -
           1;
  }
  /// The chain in which a group is the stage-th, counted from 0.
  std::size_t chain_at(std::size_t group, std::size_t stage) const {
    return (group + number() - stage) % number();
  }
  int first(std::size_t chain) const { return turns_[begins_[chain]]; }
  int last(std::size_t chain) const { return before(begins_[chain]); }
  /// Whose turn is before this one, in every chain that does not begin with it.
  int before(std::size_t turn) const { return turns_[(turn + turns_.size() - 1) % turns_.size()]; }

 private:
  std::vector<int> turns_;
  std::vector<std::size_t> begins_;
};

}  // namespace hccl::exec::host
