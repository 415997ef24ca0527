// A node of the control tree, from when it is in until it leaves or dies: it merges what comes from
// below, floods news, finds a new parent when its own is gone, and becomes the root when it must.
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

/// Frames, ended lines and the time go in; frames, dials and news come out. Lines and nodes are
/// numbers; ranks are those of the roster. Times never decrease. For one thread.
class Relay {
 public:
  enum class State : std::uint8_t { kIn, kOrphan, kRoot, kOver };
  struct Out {
    LineId line = 0;
    std::string frame;   ///< may be empty
    bool close = false;  ///< close the line once the frame is sent
  };
  /// What the caller must do, and tell its ranks.
  struct Step {
    std::vector<Out> outs;
    std::vector<std::uint32_t> dials;         ///< nodes; then opened() or failed()
    News heard;                               ///< what was new to this node
    std::vector<Gatherings::Answer> answers;  ///< a rank heeds the first of a key
    std::vector<Gatherings::Late> late;       ///< each rank in `arrived` logs `awaited`
  };

  /// The node begins with the lines of joining, which seated() names. A node without a line to its
  /// parent is an orphan.
  Relay(std::shared_ptr<const Roster> roster, std::uint32_t node,
        std::chrono::nanoseconds peer_timeout, Time now);

  /// A line of joining, to the parent or to a child by the roster.
  Step seated(LineId line, std::uint32_t node, Time now);
  /// A dial has opened a line. Lines that others open begin with frame().
  Step opened(LineId line, std::uint32_t node, Time now);
  /// A dial has failed. `gone`: the node's host says that the process has ended.
  Step failed(std::uint32_t node, bool gone, Time now);
  Step frame(LineId line, std::string_view bytes, Time now);
  /// The other end has closed the line.
  Step closed(LineId line, Time now);
  /// Whenever next() has come, or later.
  Step tick(Time now) {
    return step(now, [] {});
  }
  Time next() const { return next_; }

  /// What ranks of this process say.
  Step gather(const Gatherings::Key& key, const Gathering& part, Time now);
  Step report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now);
  Step waits(const Wait& wait, Time now);
  Step ends(std::uint32_t rank, const std::string& last, Time now);
  /// The rank has left, or ended without leaving; other ranks of this process stay.
  Step rank_left(std::uint32_t rank, Time now) { return say_rank(Kind::kRankLeft, rank, now); }
  Step rank_died(std::uint32_t rank, Time now) { return say_rank(Kind::kRankDied, rank, now); }
  /// The rank has refused a call in the place of the scope's operation of this number. `scope`:
  /// kEverything for a call that would have made a group; such calls have no numbers. Without a
  /// text, the rank has destroyed its communicator.
  Step refused(std::uint32_t rank, const Uuid& scope, std::uint64_t number, std::string text,
               Time now);
  /// All nodes hear that this communicator's ranks are needed for messages.
  Step summon(const Uuid& scope, Time now);
  /// The process leaves, with all its ranks. It waits a moment for processes below it that leave,
  /// too: they would need new parents. state() is kOver once it may exit, kTogether and a second
  /// later at most.
  Step leave(Time now);

  static constexpr std::chrono::milliseconds kTogether{300};

  State state() const { return state_; }
  const Root& root() const { return tree_.root(); }
  const News& news() const { return news_; }
  /// The numbers of the nodes in this node's part of the tree, itself included.
  RankSet below() const;
  /// Whether all neighbours have acknowledged what this node has said.
  bool is_heeded() const;

 private:
  /// How long a new root waits for nodes that have heard verdicts, and a node that leaves for those
  /// that have not heard of it.
  static constexpr std::chrono::milliseconds kGrace{800};
  /// A node that changes parents turns up in this time.
  static constexpr std::chrono::milliseconds kTurnUp{100};
  using Line = Neighbours::Line;
  using Role = Neighbours::Role;
  enum class Why : std::uint8_t { kProbe, kOffer, kAsk };  // of a dial
  struct Dial {
    Why why;
    std::uint32_t skipped;  // an offer to a node below this one, which does not answer
  };
  // The contents of a frame that a rank sends once, or a node about another node.
  struct Up {
    Uuid scope{};              // of a report
    std::uint32_t number = 0;  // of the rank, or of the node: kSilent, kLeave
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
  void put_known(ByteWriter& out) const;
  ByteWriter adopt_body() const;
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
  Step say_up(Kind kind, const ByteWriter& out, Time now);
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
  Time seek_at_{}, give_up_at_ = Time::max();  // an orphan's
  Time learned_{};                             // when something was news
  Time silenced_{};                            // when a silent node was news
  struct Untold {
    Time since;
    News news;
    std::vector<Gatherings::Answer> answers;  // errors that came after the news
  };
  std::deque<Untold> untold_;           // what the own ranks have not heard
  std::size_t proof_ = 0;               // the parent lives if it acknowledges so many frames
  std::vector<std::string> doubted_{};  // its frames until then
  RankSet said_below_, said_doubts_;
  std::map<std::tuple<Uuid, std::uint64_t, Uuid>, Wait> waits_;  // that the parent has not heard
  Time waits_at_ = Time::max();
  std::set<std::pair<Kind, std::string>> kept_;  // what went up, until its end is known
  Refusals refusals_;
  Time leaves_at_ = Time::max();  // when the others hear of it
  Time leave_by_ = Time::max();
  bool told_ = false;  // a node that stays knows that this one leaves

  std::optional<Verdicts> verdicts_;  // the root's
  bool held_ = false;
  Time held_until_{}, census_at_ = Time::max();
  Time parts_by_{};  // parts of nodes that have turned up may be on their way until then
  std::map<std::uint32_t, Time> suspects_;  // silent nodes, and when each counts as dead
};

}  // namespace hccl::control
