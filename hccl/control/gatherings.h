// The gatherings of one node of the control tree: when the node waits, when it answers, and when it
// tells its parent.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "hccl/control/gathering.h"

namespace hccl::control {

using Time = std::chrono::steady_clock::time_point;

inline constexpr std::size_t kGatheringsCap = 4096;  ///< open ones of a node, and kept answers

/// The gatherings of one node of the tree: those that are open, and the last answer of each group.
/// An answer of which a relay has told only some members before it died is said again by their
/// nodes to their new parents. For one thread.
class Gatherings {
 public:
  struct Key {
    Uuid group{};
    std::uint64_t number = 0;  ///< counts the gatherings of the group
    auto operator<=>(const Key&) const = default;
  };
  struct Answer {
    Key key;
    Gathering sum;
    /// Success: all members have arrived, or all that live if the gathering does not await all, and
    /// name the same members.
    Status why;
  };
  struct Open {
    Gathering sum;
    Time since{}, deadline{}, next_word{};  ///< since: the first part, at its rank
    bool word = false;                      ///< a node below has said what it has
    bool late = false;                      ///< it is open for longer than kFirstWord
    bool up = false;  ///< the parent knows of it, so that a node above answers
    RankSet said;     ///< the ranks in the sum that the parent has heard
  };
  /// The node's place in the tree.
  struct Place {
    RankSet below;            ///< the ranks of the node and of the nodes below it
    RankSet gone;             ///< ranks that died or left
    bool root = false;        ///< only the root ends a gathering with an error
    std::set<Key> vain = {};  ///< gatherings that the root must end
    RankSet silent = {};      ///< of `gone`: those that may live, and be cut off from the root
    RankSet in_doubt = {};    ///< ranks that may soon be silent, too
    Time parts_by{};          ///< no deadline ends before, as parts may be on their way
  };
  struct Due {
    std::vector<Answer> answers;                   ///< for all members; answered() knows them
    std::vector<std::pair<Key, Gathering>> parts;  ///< for the parent
  };
  struct Late {
    Key key;
    RankSet arrived;  ///< or those of them that log the others
    RankSet awaited;
  };
  /// A relay that waits longer for members below it says what it has.
  static constexpr std::chrono::seconds kFirstWord{2};
  static constexpr std::chrono::seconds kNextWord{30};
  /// Words of several relays come to the root in this time.
  static constexpr std::chrono::milliseconds kWordsMeet{200};

  /// Adds a part or a sum from below. Returns the answer if the gathering is over. `is_word`: the
  /// node below still waits for members, and has said what it has; this node does so, too.
  std::optional<Answer> add(const Key& key, const Gathering& part, Time now, bool is_word = false);
  /// Everything that the node must now answer, or say to its parent.
  Due due(const Place& place, Time now);
  /// An answer has been given or heard. Returns whether it is news.
  bool answered(Answer answer);
  /// At the root: ends a gathering with an error. It is open. `refused`: for Gathering::refused.
  Answer fail(const Key& key, const Status& why,
              const std::map<std::uint32_t, RankSet>& refused = {});
  /// The node has a new parent, which has heard nothing.
  void moved();
  /// The last answer of each group, and the last success, for a new parent.
  std::vector<Answer> last() const;
  /// At the root: gatherings whose members must now hear the list of awaited ranks.
  std::vector<Late> late(Time now);
  const std::map<Key, Open>& open() const { return open_; }
  /// When due() or late() next depends on the time alone.
  Time next() const;

 private:
  static std::optional<Status> verdict(const Open& open, const Place& place, Time now);
  static std::optional<Status> may_go_on(const Open& open, const Place& place, Time now);
  static bool says(const Key& key, const Open& open, const Place& place, Time now);

  std::map<Key, Open> open_;
  // By group, and whether it is a success. A member that has not heard the last success holds up
  // the next one, but not the next error.
  std::map<std::pair<Uuid, bool>, Answer> last_;
  const Answer* last(const Uuid& group, bool success) const;
};

}  // namespace hccl::control
