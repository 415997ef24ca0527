// A node of the control tree, from the end of joining until the node leaves or dies. The node
// merges reports from below, spreads news, finds a new parent when its parent is gone, and becomes
// the root when it must.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hccl/control/neighbours.h"
#include "hccl/control/news.h"
#include "hccl/control/verdicts.h"

namespace hccl::control {

/// Takes frames, ended lines and the time; returns frames, dials and news. Lines and nodes are
/// numbers; ranks are ranks of the roster. Callers pass times that never decrease. Not thread-safe.
class Relay {
 public:
  enum class State : std::uint8_t { kIn, kOrphan, kRoot, kOver };
  struct Out {
    LineId line = 0;
    std::string frame;   ///< may be empty
    bool close = false;  ///< close the line once the frame is sent
  };
  /// Work for the caller, and news for this process's ranks.
  struct Step {
    std::vector<Out> outs;
    std::vector<std::uint32_t> dials;         ///< nodes to dial; opened() or failed() follows
    News heard;                               ///< news that this node did not have
    std::vector<Gatherings::Answer> answers;  ///< a rank takes the first answer for each key
    std::vector<Gatherings::Late> late;       ///< each rank in `arrived` logs `awaited`
  };

  /// Starts without lines; seated() adds the lines that joining has made. A node without a line to
  /// its parent is an orphan.
  Relay(std::shared_ptr<const Roster> roster, std::uint32_t node,
        std::chrono::nanoseconds peer_timeout, Time now);

  /// A line that joining has made, to the parent or to a child of the roster.
  Step seated(LineId line, std::uint32_t node, Time now);
  /// A dial has opened a line. For a line that the other end opened, frame() is the first call.
  Step opened(LineId line, std::uint32_t node, Time now);
  /// A dial has failed. `gone`: the node's host reports that the process has ended.
  Step failed(std::uint32_t node, bool gone, Time now);
  Step frame(LineId line, std::string_view bytes, Time now);
  /// The other end has closed the line.
  Step closed(LineId line, Time now);
  /// Call it at next() or later.
  Step tick(Time now) {
    return step(now, [] {});
  }
  Time next() const { return next_; }

  /// Reports of this process's ranks. gather() contributes a part of a gathering. The root passes
  /// each of the other reports to the function of Verdicts with the same name.
  Step gather(const Gatherings::Key& key, const Gathering& part, Time now);
  Step report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now);
  Step waits(const Wait& wait, Time now);
  Step ends(std::uint32_t rank, const std::string& last, Time now);
  /// The rank has left, or has ended without leaving (rank_died). Other ranks of this process stay.
  Step rank_left(std::uint32_t rank, Time now) { return say_rank(Kind::kRankLeft, rank, now); }
  Step rank_died(std::uint32_t rank, Time now) { return say_rank(Kind::kRankDied, rank, now); }
  /// The rank has refused a call in place of the scope's operation `number`. `scope`: kEverything
  /// for a call that would have made a group; such calls have no numbers. An empty `text`: the rank
  /// has destroyed its communicator.
  Step refused(std::uint32_t rank, const Uuid& scope, std::uint64_t number, std::string text,
               Time now);
  /// Tells all nodes that this communicator's ranks must open connections.
  Step summon(const Uuid& scope, Time now);
  /// The process leaves, with all its ranks. First the process waits up to kTogether for processes
  /// below it that leave, too, which would otherwise need new parents. state() is kOver once the
  /// process may exit, at most kTogether plus one second later.
  Step leave(Time now);

  static constexpr std::chrono::milliseconds kTogether{300};

  State state() const { return state_; }
  const Root& root() const { return tree_.root(); }
  const News& news() const { return news_; }
  /// The numbers of the nodes in this node's subtree, this node included.
  RankSet below() const;
  /// Whether all neighbours have acknowledged all frames of this node.
  bool is_heeded() const;

 private:
  /// The longest time that a new root waits for nodes that may have verdicts, and that a leaving
  /// node waits until its neighbours know that it leaves.
  static constexpr std::chrono::milliseconds kGrace{800};
  /// A node that changes parents is in the tree again within this time.
  static constexpr std::chrono::milliseconds kTurnUp{100};
  using Line = Neighbours::Line;
  using Role = Neighbours::Role;
  enum class Why : std::uint8_t { kProbe, kOffer, kAsk };  // the purpose of a dial
  struct Dial {
    Why why;
    std::uint32_t skipped;  // for kOffer: the silent node above the dialed one
  };
  // The contents of a frame of kind kSilent, or of one of the kinds from kReport on.
  struct Up {
    Uuid scope{};              // of a report
    std::uint32_t number = 0;  // the rank; for kSilent and kLeave: the node
    Status why;                // of a report
    std::string last;          // of kEnds
  };

  Step step(Time now, const std::function<void()>& event);
  void settle();

  // Frames (relay_frames.cc).
  void digest(LineId id, std::string_view bytes);
  bool hear(LineId id, Line& line, Kind kind, std::string_view body);
  bool hear_adopt(LineId id, Line& line, ByteReader& in);
  bool hear_offer(LineId id, Line& line, ByteReader& in);
  bool hear_welcome(LineId id, Line& line, ByteReader& in);
  bool hear_known(LineId id, ByteReader& in);
  bool hear_answer(LineId id, ByteReader& in);
  bool hear_part(LineId id, ByteReader& in);
  bool hear_awaited(ByteReader& in);
  std::string adopt_body() const;
  void send(LineId id, Kind kind, std::string_view body = {});
  void say_answer(LineId to, const Gatherings::Answer& answer);
  void tell_answer(const Gatherings::Answer& answer, LineId from);
  void tell_own(const Gatherings::Answer& answer);
  void answered(const Gatherings::Answer& answer, LineId from);
  void tell_late(const Gatherings::Late& late);

  // Frames towards the root (relay_up.cc).
  bool hear_up(Kind kind, std::string_view body);
  void hear_refusal(const Refusal& refusal);
  void say_refusal(const Refusal& refusal);
  Step say_up(Kind kind, const std::string& body, Time now);
  Step say_rank(Kind kind, std::uint32_t rank, Time now);
  std::optional<Up> get_up(Kind kind, ByteReader in) const;
  void decide(Kind kind, const Up& up);
  bool keep(Kind kind, const Up& up) const;
  void forget_decided();
  void pass_on(const Wait& wait);

  // The tree (relay.cc), and the root (relay_root.cc).
  void obey(const Root& root, LineId from);
  void learn(const RankSet& gone, const News& news, LineId from);
  void spread(const RankSet& gone, const News& news, LineId from);
  void dial(std::uint32_t node, Why why, std::uint32_t skipped = kNodesCap);
  void close(LineId id);
  void lose(LineId id, bool probe);
  void say_bye(LineId id);
  void become_orphan();
  void become_root();
  void step_down();
  void tell_ranks();
  void seek();
  void give_up_asking();
  void offer_below(const Line& child);
  void watch();
  void rule();
  void census();
  void judge_gatherings();
  RankSet speakers(const Gatherings::Late& late) const;
  void answer_due();
  void say_below();
  void leave_if_alone();
  void go_if_told();
  void go();
  RankSet missing() const;
  void suspect(std::uint32_t silent);
  void note_absent();
  std::string after_stop() const;
  RankSet nodes_in_doubt() const;
  RankSet ranks_in_doubt() const;
  RankSet ranks_of(const RankSet& nodes) const;
  RankSet gone_ranks() const;

  std::shared_ptr<const Roster> roster_;
  std::vector<std::vector<std::uint32_t>> children_;
  std::uint32_t node_;
  Neighbours neighbours_;
  Tree tree_;
  Gatherings gatherings_;
  News news_;
  State state_ = State::kOrphan;
  Time now_, next_, ran_, judges_at_{};
  Step step_;

  static constexpr LineId kNoLine = -1;
  LineId parent_ = kNoLine;
  std::map<std::uint32_t, Dial> dials_;
  Time seek_at_{}, give_up_at_ = Time::max();  // only for an orphan
  Time learned_{};                             // when this node last got news
  Time silenced_{};                            // when a node was last declared silent
  struct Stop {
    Time end{};
    std::chrono::nanoseconds length{};
  };
  Stop stop_;  // this node's last stop that was not shorter than the peer timeout
  struct Untold {
    Time since;
    News news;
    std::vector<Gatherings::Answer> answers;  // errors that came after the news
  };
  std::deque<Untold> untold_;           // news that this node's ranks do not have
  std::size_t proof_ = 0;               // the parent lives if it acknowledges this many frames
  std::vector<std::string> doubted_{};  // frames of the parent that wait for this proof
  RankSet said_below_, said_doubts_;
  std::map<std::tuple<Uuid, std::uint64_t, Uuid>, Wait> waits_;  // not sent to the parent yet
  Time waits_at_ = Time::max();
  std::set<std::pair<Kind, std::string>> kept_;  // frames sent up whose decision is unknown
  Refusals refusals_;
  Time leaves_at_ = Time::max();  // when this node reports that it leaves
  Time leave_by_ = Time::max();
  bool told_ = false;  // a node that stays knows that this node leaves

  std::optional<Verdicts> verdicts_;  // only at the root
  bool held_ = false;
  Time held_until_{}, census_at_ = Time::max();
  Time parts_by_{};  // until then, parts of nodes that changed parents may be on their way
  struct Absent {
    Time since{};             // when the last sign of life came
    bool unanswered = false;  // the last dial had no answer
  };
  std::map<std::uint32_t, Absent> absent_;  // at the root: missing nodes
  std::map<std::uint32_t, Time> suspects_;  // silent nodes, and when each counts as dead
};

}  // namespace hccl::control
