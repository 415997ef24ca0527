// The gatherings of one node of the control tree. Decides when the node waits, answers, or sends a
// sum to its parent.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/recent.h"
#include "hccl/base/status.h"
#include "hccl/control/gathering.h"

namespace hccl::control {

using Time = std::chrono::steady_clock::time_point;

inline constexpr std::size_t kGatheringsCap = 4096;   ///< the most open gatherings
inline constexpr std::size_t kAnswersCap = 8U << 20;  ///< the most bytes of stored answers

/// The gatherings of one node of the tree: the open ones, and the latest answers, one of each
/// group. If a relay dies after it has passed an answer to only some members, the nodes of these
/// members send the answer to their new parents. Not thread-safe.
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
    /// Success: all members have arrived and name the same members. Without kAwaitsAll the living
    /// members are enough.
    Status why;
  };
  struct Open {
    Gathering sum;
    Time since{}, deadline{}, next_report{};  ///< since: when the first member arrived
    bool partial = false;                     ///< a node below has sent a partial sum
    bool late = false;                        ///< open for longer than kLateAfter
    bool up = false;          ///< the parent knows the gathering, so the root answers
    RankSet said;             ///< the ranks whose parts the parent has
    std::string elsewhere{};  ///< at the root: the other calls of awaited ranks, for the error
  };
  /// The node's place in the tree.
  struct Place {
    RankSet below;            ///< the ranks of the node and of the nodes below it
    RankSet gone;             ///< ranks that died or left
    bool root = false;        ///< only the root ends a gathering with an error
    std::set<Key> vain = {};  ///< gatherings that a refused call will end with an error
    RankSet silent = {};      ///< ranks of `gone` that may live, but are cut off from the root
    RankSet in_doubt = {};    ///< living ranks that may turn out to be silent, too
    Time parts_by{};  ///< before this time no gathering times out: parts may be on their way
  };
  struct Due {
    std::vector<Answer> answers;  ///< to send to all members; answered() has stored them
    std::vector<std::pair<Key, Gathering>> parts;  ///< to send to the parent
  };
  struct Late {
    Key key;
    RankSet arrived;  ///< all arrived ranks, or only the arrived ranks that log `awaited`
    RankSet awaited;
  };
  /// A relay that has waited this long for members below sends its partial sum.
  static constexpr std::chrono::seconds kLateAfter{2};
  static constexpr std::chrono::seconds kReportEvery{30};
  /// Within this time the partial sums of several relays reach the root.
  static constexpr std::chrono::milliseconds kPartialsMeet{200};

  /// Adds a part or a sum from below. Returns the answer if the gathering is over. `partial`: the
  /// sum is partial, because the node below still waits for members; this node then sends a partial
  /// sum, too.
  std::optional<Answer> add(const Key& key, const Gathering& part, Time now, bool partial = false);
  /// All answers and sums that the node must send now.
  Due due(const Place& place, Time now);
  /// Stores an answer that this node made or received. Returns whether the answer is new.
  bool answered(Answer answer);
  /// At the root: ends an open gathering with an error. `refused` is merged into
  /// Gathering::refused.
  Answer fail(const Key& key, const Status& why,
              const std::map<std::uint32_t, RankSet>& refused = {});
  /// Call it when the node has a new parent, which has no sum of this node yet.
  void moved();
  /// For a new parent: the last success and the last error of each group, the oldest first, at most
  /// kAnswersCap bytes. The pointers are valid until the next answer.
  std::vector<const Answer*> last() const;
  /// At the root: gatherings whose members must now get the list of awaited ranks.
  std::vector<Late> late(Time now);
  const std::map<Key, Open>& open() const { return open_; }
  /// The next time at which due() or late() may return something new without a new part or answer.
  Time next() const;

 private:
  static std::optional<Status> verdict(const Open& open, const Place& place, Time now);
  static std::optional<Status> may_go_on(const Open& open, const Place& place, Time now);
  void note_other_calls(const Key& key, Open& open);
  static bool says(const Key& key, const Open& open, const Place& place, Time now);

  std::map<Key, Open> open_;
  // The last answers, by group and success. Errors have their own entries: the next success waits
  // until all members have the last success, but an error may come before.
  Recent<std::pair<Uuid, bool>, Answer> last_{kAnswersCap};
  const Answer* last(const Uuid& group, bool success) const;
};

}  // namespace hccl::control
