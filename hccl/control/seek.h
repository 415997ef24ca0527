// A process on its way into the control tree: it asks the root for a seat, is sent from node to
// node, announces its ranks and the processes below it, and waits for the finished roster.
#pragma once

#include <chrono>
#include <cstdint>
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

#include "hccl/control/claims.h"
#include "hccl/control/relay.h"

namespace hccl::control {

inline constexpr std::uint32_t kJoinVersion = 10;       ///< version of the frames of joining
inline constexpr std::uint32_t kLastHello = 7;          ///< the last version without a tree
inline constexpr std::uint8_t kFirstJoinKind = 1 << 6;  ///< frames of a Relay begin with a lower
                                                        ///< byte

/// Takes frames, ended lines and the time; returns frames and dials. After joining, answers
/// processes that come late. Callers pass times that never decrease. Not thread-safe.
class Seek {
 public:
  enum class State : std::uint8_t { kSeeking, kSeated, kIn, kOver };
  struct Place {
    std::string address;
    std::uint16_t port = 0;
  };
  struct Step {
    std::vector<Relay::Out> outs;
    std::optional<Place> dial;  ///< opened() or failed() follows
  };

  /// `own`: this process, with one host that has an address, and one node. `size`: ranks of the
  /// world; the root may pass 0 to take the first newcomer's size and agreement. All ranks must
  /// come within `patience`. `root`: nothing if this process is the root. `claimants`: for the
  /// root. tick() starts joining.
  Seek(Roster own, std::uint32_t size, std::string agreement, std::optional<Place> root,
       std::chrono::nanoseconds patience, Time now, Claimants claimants = {});

  /// The dial has opened a line. For a line that the other end opened, frame() is the first call.
  Step opened(LineId line, Time now);
  /// `gone`: the process there has ended. `why`: for people.
  Step failed(bool gone, std::string why, Time now);
  Step frame(LineId line, std::string_view bytes, Time now);
  /// One more rank of this process joins; `rank` is below `size`. If the rank's size or agreement
  /// differs from the others', or another thread has brought the same rank, no process can join.
  Step bring(std::uint32_t rank, std::uint32_t size, const std::string& agreement, Time now,
             const Attempt& attempt = {});
  /// The other end has closed the line.
  Step closed(LineId line, Time now);
  /// Call it at next() or later.
  Step tick(Time now) {
    return step(now, [] {});
  }
  Time next() const { return next_; }
  /// This process cannot join; if this process is the root, no process can.
  Step give_up(const Status& why, Time now) {
    return step(now, [&] { end(why); });
  }

  /// The frame that reports to the root that a process cannot join. The root then refuses all
  /// processes.
  static std::string cannot(const Status& why);

  State state() const { return state_; }
  const Status& why() const { return why_; }  ///< of kOver
  /// For the Relay, valid in the state kIn: roster(), this process's node() in the roster, and the
  /// lines() to the node's neighbours.
  std::shared_ptr<const Roster> roster() const { return roster_; }
  std::uint32_t node() const { return node_; }
  const std::vector<std::pair<LineId, std::uint32_t>>& lines() const { return lines_; }

 private:
  enum class Kind : std::uint8_t {
    kHello = 1,         ///< instead of kAsk, from a rank of a version up to kLastHello
    kHelloRefused = 3,  ///< the answer to kHello
    kAsk = kFirstJoinKind,
    kSeat,
    kBelow,
    kAway,  ///< down: refuses one process below, and no other
    kRoster,
    kRefused,
    kCannot  ///< to the root, instead of kAsk or after it: nobody can join
  };
  static constexpr LineId kNoLine = -1;
  using Process = std::tuple<std::string, std::uint32_t, std::uint16_t, std::uint64_t>;
  enum class Goes : std::uint8_t { kFirst, kSecond, kBoth };  // which of two processes with one
                                                              // rank must end

  Step step(Time now, const std::function<void()>& event);
  void settle();
  bool joining() const { return state_ == State::kSeeking || state_ == State::kSeated; }
  void dial(const Place& to);
  void seek_later();
  bool hear_above(Kind kind, ByteReader& in);
  bool hear_below(LineId id, Kind kind, ByteReader& in);
  bool hear_ask(LineId id, ByteReader& in);
  Status differs(const std::string& name, std::uint32_t size, const std::string& agreement);
  void add(LineId id, const Roster& sub, bool whole);
  void note_grown(const Roster& sub);
  void rebuild();
  void note(const Status& why);
  void say_above();
  void drop(LineId id);
  void lose(LineId id);
  void come_in(std::shared_ptr<const Roster> roster, bool keeps);
  void end(const Status& why, bool alone = false);
  void send(LineId id, std::string frame, bool close = false);
  void refuse(LineId id, const Status& why, bool alone = false);
  void pass_away(const Process& process, const Status& why);
  static std::string rank_of(const Roster& process);
  static std::string name_of(const Roster& process);
  static Status impossible(const Roster& process, std::uint32_t size);
  static Process process_of(const Roster& all, std::uint32_t node);

  // The root (seek_root.cc).
  static Status other_version(const std::string& name, std::uint32_t version);
  bool hear_hello(LineId id, ByteReader& in);
  void settle_root();
  void admit(std::uint32_t node);
  std::vector<std::uint32_t> admitted() const;
  void recount();
  Goes who_goes(const Claim& first, const Claim& second) const;
  void end_contested(const Status& why);
  bool stands();
  void send_away(const Process& process, const Status& why);

  void send_roster(LineId id, const Roster& process);

  Roster own_;
  std::uint32_t size_;
  std::string agreement_, first_;  // first_: the process that named the size first
  std::optional<Place> root_;
  std::chrono::nanoseconds patience_, pause_{};
  State state_;
  Time now_, next_, deadline_, seek_at_{}, say_at_ = Time::max();
  Step step_;
  LineId above_ = kNoLine;  // the line to the parent, or to a node that was asked
  Place to_;                // the address that was dialed last
  bool dialing_ = false, to_root_ = false, reached_ = false;
  std::string last_ = "no answer";
  Seats seats_;
  std::map<LineId, RosterDraft> children_;  // each child, with the processes below it
  RosterDraft all_, fresh_;              // processes below; processes that the parent does not know
  bool whole_ = false;                   // the parent must replace its draft by all_
  RankSet went_;                         // ranks whose processes came and ended
  Status to_tell_;                       // why no process can join; reported to the root later
  Status wrong_, why_;                   // why this process must end; the reason of kOver
  bool alone_ = false;                   // this process is refused, and others go on
  Claimants claimants_;                  // from here on, members of the root only
  std::uint32_t judged_ = 0;             // number of nodes of all_ that were judged
  std::map<Process, RankSet> admitted_;  // each with its judged ranks
  // By machine and agent: the latest attempt that has sent a process.
  std::map<std::pair<std::string, std::uint32_t>, std::uint32_t> attempts_;
  std::map<Process, Status> refused_;  // processes that were refused alone
  RankSet taken_;                      // ranks of admitted processes
  bool leaving_ = false;               // a refused process is still in all_
  std::shared_ptr<const Roster> roster_;
  std::uint32_t node_ = 0;
  std::vector<std::pair<LineId, std::uint32_t>> lines_;
};

}  // namespace hccl::control
