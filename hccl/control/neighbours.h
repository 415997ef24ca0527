// The lines from one node to its neighbours in the control tree: acknowledgements, beats and
// silence. A node that was stopped or starved does not blame its neighbours for the time in which
// it did not run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/control/gatherings.h"
#include "hccl/control/tree.h"

namespace hccl::control {

using LineId = int;

enum class Kind : std::uint8_t {
  kAck,      ///< head only; the only kind without an acknowledgement
  kBeat,     ///< head only
  kBye,      ///< the sender closes the line, and lives on
  kAdopt,    ///< an orphan asks to become a child of the receiver
  kOffer,    ///< the sender offers to be the receiver's parent
  kWelcome,  ///< accepts kAdopt
  kRefused,  ///< rejects kAdopt or kOffer
  kNews,     ///< this kind and the next: up and down
  kAnswer,
  kAwaited,  ///< down only: the late members of a gathering
  kBelow,    ///< from here on: up only
  kPart,
  kWait,
  kSilent,
  kRefusedCall,  ///< nodes keep the last refusal of each rank and communicator
  kReport,       ///< from here on: nodes keep these frames until the root's decision is known
  kEnds,
  kRankLeft,
  kRankDied,
  kLeave,
};

/// The lines of one node. Callers pass times that never decrease. Not thread-safe.
class Neighbours {
 public:
  enum class Role : std::uint8_t { kStranger, kAsked, kOffered, kParent, kChild };
  static constexpr std::uint32_t kNotSaid = ~std::uint32_t{0};
  struct Line {
    /// Frames that were sent so far.
    std::uint32_t sent() const { return heeded + static_cast<std::uint32_t>(unheeded.size()); }
    /// Whether the other end knows that this node leaves.
    bool knows_farewell() const { return unheeded.empty() || heeded >= farewell; }

    Role role = Role::kStranger;
    std::uint32_t node = 0;  ///< unknown for a stranger
    RankSet below;           ///< for a child: the nodes in its subtree, the child included
    RankSet in_doubt{};      ///< for a child: nodes of `below` that do not answer their parents
    bool skipped = false;    ///< for a child: this node made offers to the nodes below it
    std::uint32_t got = 0;   ///< frames that came
    std::deque<Time> unheeded{};        ///< send times of frames without acknowledgement
    std::uint32_t heeded = 0;           ///< frames that the other end has acknowledged
    std::uint32_t farewell = kNotSaid;  ///< frames after which the other end knows that this node
                                        ///< leaves
    Time told{};                        ///< when this node sent everything that it knows
    Time heard{}, beat{};               ///< when the last frame came; when a beat is due
    Time owes = Time::max();            ///< when an acknowledgement is due
  };
  static constexpr std::size_t kHeadBytes = 13;        ///< bytes of a frame's head
  static constexpr std::uint32_t kEpochCap = 1 << 30;  ///< no tree has so many roots
  static constexpr std::chrono::milliseconds kSkip{300}, kAckIn{50};
  /// The root waits for one beat after a silence, because the last frame may have come just before
  /// or a whole beat before the fault. Shorter than a second, because users are promised the error
  /// within a second after the peer timeout.
  static constexpr std::chrono::milliseconds kBeats{750};

  explicit Neighbours(std::chrono::nanoseconds peer_timeout)
      : peer_timeout_(peer_timeout),
        beats_(std::min<std::chrono::nanoseconds>(kBeats, peer_timeout / 4)) {}
  std::chrono::nanoseconds peer_timeout() const { return peer_timeout_; }
  /// The time between two beats on a line.
  std::chrono::nanoseconds beats() const { return beats_; }

  Line& add(LineId id, Role role, std::uint32_t node, Time now);
  Line* find(LineId id);
  void erase(LineId id) { lines_.erase(id); }
  const std::map<LineId, Line>& lines() const { return lines_; }
  std::map<LineId, Line>& lines() { return lines_; }
  /// The ids of the lines for which `is(id, line)` holds. The caller may close these lines while it
  /// passes over the ids.
  template <class Is>
  std::vector<LineId> those(Is is) const {
    std::vector<LineId> all;
    for (const auto& [id, line] : lines_) {
      if (is(id, line)) all.push_back(id);
    }
    return all;
  }

  /// The bytes of a frame, with its head.
  std::string seal(Line& line, Kind kind, const Root& root, std::string_view body, Time now);
  struct Head {
    Kind kind{};
    Root root;
  };
  /// Reads a frame's head. Returns nothing if the head is not valid.
  std::optional<Head> unseal(Line& line, ByteReader& frame, Time now);

  /// Call it when the node's thread runs at `now` and should have run at `due`. Returns the delay,
  /// or zero if the delay is usual.
  std::chrono::nanoseconds ran(Time due, Time now);
  /// Whether the other end has left a frame without an acknowledgement for too long.
  bool is_unheeded(const Line& line, Time now) const { return now >= skip_at(line); }
  bool is_silent(const Line& line, Time now) const { return now >= line.heard + peer_timeout_; }
  /// The empty frame (beat or acknowledgement) that is due on the line, if any.
  static std::optional<Kind> due(const Line& line, Time now);
  /// The next time at which due(), is_unheeded() or is_silent() may change for a line.
  Time next() const;

 private:
  Time skip_at(const Line& line) const;

  std::chrono::nanoseconds peer_timeout_, beats_, lateness_{};
  Time late_until_{};
  std::map<LineId, Line> lines_;
};

}  // namespace hccl::control
