// Which ranks share a core, where they are bound to cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hccl::exec::host {

/// As one place sees it.
class Cores {
 public:
  /// Nobody is bound.
  Cores() = default;
  /// `groups`: the places of each core; all places, once each.
  Cores(const std::vector<std::vector<int>>& groups, int place) {
    for (const auto& group : groups) {
      const bool mine = std::find(group.begin(), group.end(), place) != group.end();
      if (!mine) other_firsts_.push_back(group.front());
      most_ = std::max(most_, group.size());
      for (std::size_t i = 0; i < group.size(); ++i) {
        const auto at = static_cast<std::size_t>(group[i]);
        if (at >= seats_.size()) seats_.resize(at + 1);
        seats_[at] = {group.front(), i, mine};
      }
    }
  }

  bool bound() const { return !seats_.empty(); }
  /// The rest is only of bound places.
  bool on_mine(int place) const { return seat(place).mine; }
  /// The first place of its core.
  int first(int place) const { return seat(place).first; }
  /// How many places of its core are before it.
  std::size_t index(int place) const { return seat(place).index; }
  /// The first place of each other core.
  const std::vector<int>& other_firsts() const { return other_firsts_; }
  /// Places of the core that has most.
  std::size_t most() const { return most_; }

 private:
  struct Seat {
    int first = 0;
    std::size_t index = 0;
    bool mine = false;
  };
  const Seat& seat(int place) const { return seats_[static_cast<std::size_t>(place)]; }

  std::vector<Seat> seats_;
  std::vector<int> other_firsts_;
  std::size_t most_ = 0;
};

}  // namespace hccl::exec::host
