// The gatherings of ranks of a virtual world, and the rules for their answers. The oracle sees all
// events, and uses no code of the relays.
#pragma once

#include <optional>

#include "tests/control/virtual_world.h"

namespace hccl::control {

inline constexpr seconds kPatience{4};          // a gathering's time limit
inline constexpr seconds kOutlastsSilence{13};  // until silent members are known
inline constexpr seconds kLateAfter{2};         // a relay waits this long for members below it

/// How often each event happened, so that a test can require each event; and the longest times
/// after the last fault, by kind of world and of event.
struct Counts {
  std::map<std::string, std::uint64_t> events;
  std::map<std::pair<int, std::string>, nanoseconds> longest;
};

inline Uuid nth_scope(std::uint32_t number) { return {static_cast<std::uint8_t>(1 + number), 9}; }

/// In a lenient group, ranks go on without the ranks that are gone.
class GatheringOracle : public World {
 public:
  GatheringOracle(std::uint64_t seed, bool trace, Counts& counts)
      : World(seed, trace), counts_(counts) {}

 protected:
  struct Call {
    std::uint32_t node = 0;
    nanoseconds said{}, patience{};
    RankSet members;
    bool answered = false;
    std::optional<RankSet> survivors{};  // set when a lenient gathering is complete
  };

  void gather(std::uint32_t group, std::uint32_t rank, std::uint64_t number) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (!speaks(rank)) return;
      say("rank " + std::to_string(rank) + " of " + name(node) + " gathers " +
          std::to_string(group + 1) + "/" + std::to_string(number));
      const Gatherings::Key key{nth_scope(group), number};
      const auto smaller = smaller_.find({group, rank});
      const RankSet members = smaller == smaller_.end() ? groups_[group] : smaller->second;
      const bool lenient = lenient_.count(group) != 0;
      const nanoseconds patience = lenient && hears_of_silence_ ? kOutlastsSilence : kPatience;
      Gathering part;
      part.arrived = {rank};
      part.members.add({rank, members});
      part.patience = patience;
      part.blobs = {{rank, std::to_string(rank)}};
      if (lenient) part.flags &= ~kAwaitsAll;
      calls_[{key, rank}] = {node, now_, patience, members};
      take(node, relay(node).gather(key, part, time()));
    });
  }
  /// Records a fault. The tree may need the time repair_ to recover.
  void fault(const std::string& what) {
    ++counts_.events[what];
    faults_.push_back(now_);
  }
  /// Lets the rank leave, or end without leaving, if another rank of its process stays.
  void end_alone(std::uint32_t rank, bool leaves) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      const auto all = roster_->nodes[node].ranks.ranks();
      const auto staying =
          std::ranges::count_if(all, [this](std::uint32_t each) { return speaks(each); });
      if (!speaks(rank) || staying < 2) return;
      say("rank " + std::to_string(rank) + (leaves ? " leaves" : " dies") + " alone");
      fault(leaves ? "ranks that leave alone" : "ranks that die alone");
      lone_[rank] = {now_, leaves};
      take(node,
           leaves ? relay(node).rank_left(rank, time()) : relay(node).rank_died(rank, time()));
    });
  }
  /// Cuts all connections between these nodes and the others, for ever.
  void sever(const std::set<std::uint32_t>& nodes) {
    fault("cuts");
    severed_ = nodes;
    severed_at_ = now_;
    cut(nodes, kNever);
  }

  void hear(std::uint32_t node, const Gatherings::Answer& answer) override {
    for (const std::uint32_t rank : roster_->nodes[node].ranks.ranks()) {
      const auto at = calls_.find({answer.key, rank});
      if (at == calls_.end() || at->second.answered) continue;  // only the first answer counts
      if (lone_.count(rank) != 0) continue;
      Call& call = at->second;
      call.answered = true;
      const std::uint32_t group = answer.key.group[0] - 1u;
      const bool lenient = lenient_.count(group) != 0;
      say("rank " + std::to_string(rank) + ": gathering " + std::to_string(answer.key.group[0]) +
          "/" + std::to_string(answer.key.number) + " " +
          (answer.why.ok() ? "is whole with " + answer.sum.arrived.text() : answer.why.message()));
      ++counts_.events[answer.why.ok() ? "whole gatherings" : "other gatherings"];
      if (!answer.why.ok()) {
        check_reason(node, rank, answer);
        continue;
      }
      if (lenient) check_survivors(node, rank, answer);
      if (!lenient) in_time(node, check_parts(node, call.members, answer), seconds(0), "an answer");
      if (lenient && shrinks_.count(group) != 0) smaller_[{group, rank}] = answer.sum.arrived;
      went_on(group, rank, answer.key.number + 1);
    }
  }
  void hear(std::uint32_t node, const Gatherings::Late& late) override {
    ++counts_.events["words on late ranks"];
    for (const std::uint32_t rank : late.arrived.ranks()) {
      const auto call = calls_.find({late.key, rank});
      require(call != calls_.end() && call->second.node == node && !call->second.answered,
              "a word on late ranks for one that does not wait");
    }
    for (const std::uint32_t rank : late.awaited.ranks()) {
      const auto call = calls_.find({late.key, rank});
      const bool came = call != calls_.end() && call->second.said + kLateAfter + repair_ < now_;
      require(!came || last_fault() != nanoseconds(0),
              "rank " + std::to_string(rank) + " came, and is said to be late");
      require(groups_[late.key.group[0] - 1u].contains(rank), "a late rank is no member");
      const Life life = life_of(rank);
      require(
          lenient_.count(late.key.group[0] - 1u) == 0 || severed_at_ <= now_ ||
              std::max(std::min(life.died, life.left), last_fault()) > now_ - repair_ - seconds(1),
          "survivors hear that a rank is late which is gone");
    }
  }
  /// Called when the rank's gathering is complete; `number` is that of its next gathering.
  virtual void went_on(std::uint32_t group, std::uint32_t rank, std::uint64_t number) = 0;

  /// The life of the rank's process, shortened if the rank ended earlier.
  Life life_of(std::uint32_t rank) const {
    Life life = lives_[roster_->node_of[rank]];
    const auto its = lone_.find(rank);
    if (its == lone_.end()) return life;
    const auto& [when, leaves] = its->second;
    if (!leaves) life.died = std::min(life.died, when);
    if (leaves) life.leaves = std::min(life.leaves, when);
    if (leaves) life.left = std::min(life.left, when);
    return life;
  }
  /// Returns whether the rank still takes part: its process does not leave, and it has not ended
  /// alone.
  bool speaks(std::uint32_t rank) const {
    return lives_[roster_->node_of[rank]].leaves == kNever && lone_.count(rank) == 0;
  }
  /// The time by which all nodes know what a rank reported at `since`; kNever if stopped nodes or a
  /// cut may delay that.
  nanoseconds settled(nanoseconds since) const {
    const auto stopped = [](const Life& life) { return !life.stops.empty(); };
    if (severed_at_ != kNever || std::ranges::any_of(lives_, stopped)) return kNever;
    for (const nanoseconds when : faults_) {
      if (when >= since && when <= since + repair_) since = when;
    }
    return since + repair_;
  }
  /// Returns whether other nodes may take the node for dead although it runs.
  bool out_of_reach(std::uint32_t node) const {
    return (lives_[node].longest_stop() > kPeerTimeout && !all_stop_) || severed_.count(node) != 0;
  }
  /// Returns whether the network is cut between nodes a and b.
  bool apart(std::uint32_t a, std::uint32_t b) const {
    return severed_.count(a) != severed_.count(b);
  }
  static bool is_refusal(const Status& why) {
    return why.message().find("was refused: bad") != std::string::npos;
  }
  nanoseconds last_fault() const { return faults_.empty() ? nanoseconds(0) : faults_.back(); }
  /// Requires that the node gets `what` at most `most` after `since` or after the last fault.
  void in_time(std::uint32_t node, nanoseconds since, nanoseconds most, const std::string& what,
               nanoseconds heard = kNever) {
    if (heard == kNever) heard = now_;
    for (const nanoseconds when : faults_) {
      if (when <= heard) since = std::max(since, when);
    }
    if (lives_[node].longest_stop() > seconds(0) || severed_.count(node) != 0) return;
    nanoseconds& longest = counts_.longest[{kind_, what}];
    longest = std::max(longest, heard - since - most - 2 * reach());
    const nanoseconds due = since + most + repair_ + asks_stopped(since, heard);
    require(heard <= due, name(node) + " waits too long for " + what + ": " +
                              std::to_string((heard - since).count() / 1000000) + " ms");
  }
  /// Requires that all ranks that a gathering of survivors answered go on, or that none of them
  /// does.
  void check_agreement(const std::vector<std::uint32_t>& here) const {
    std::map<Gatherings::Key, bool> all;
    for (const auto& [which, call] : calls_) {
      const auto& [key, rank] = which;
      const bool counts = lenient_.count(key.group[0] - 1u) != 0 && call.answered &&
                          std::ranges::find(here, call.node) != here.end();
      if (!counts) continue;
      const auto known = all.try_emplace(key, call.survivors.has_value()).first;
      require(known->second == call.survivors.has_value(),
              "of gathering " + std::to_string(key.group[0]) + "/" + std::to_string(key.number) +
                  " some go on, and others do not: rank " + std::to_string(rank));
    }
  }

  Counts& counts_;
  int kind_ = 0;                   // the kind of world
  nanoseconds repair_{};           // how long the tree may need after a fault
  bool all_stop_ = false;          // all stop at once, so that no node is out of reach
  bool hears_of_silence_ = false;  // lenient gatherings wait until silence is known
  std::vector<RankSet> groups_;
  std::set<std::uint32_t> lenient_;  // groups that are lenient
  std::set<std::uint32_t> shrinks_;  // lenient groups in which only the survivors call again
  std::set<std::uint32_t> severed_;  // nodes that a cut kept from most others for too long
  nanoseconds severed_at_ = kNever;
  struct Lone {
    nanoseconds when{};
    bool leaves = false;
  };
  std::map<std::uint32_t, Lone> lone_;  // ranks that have ended before their processes
  std::map<std::pair<Gatherings::Key, std::uint32_t>, Call> calls_;
  // By scope and rank: when this rank, and no other, refused a call.
  std::map<std::pair<Uuid, std::uint32_t>, std::vector<nanoseconds>> refused_;

 private:
  /// An orphan waits 1 s for the root and for each successor that is stopped or beyond a cut.
  /// repair_ includes the first such second; this function returns the sum of the others.
  nanoseconds asks_stopped(nanoseconds from, nanoseconds to) const {
    if (severed_at_ <= to) return seconds(severed_.size());
    const auto stopped = std::ranges::count_if(lives_, [&](const Life& life) {
      return std::ranges::any_of(life.stops, [&](const auto& each) {
        return each.second - each.first > seconds(1) && each.first <= to && each.second >= from;
      });
    });
    return seconds(std::max<std::int64_t>(0, stopped - 1));
  }
  /// The time from which `node` counts `other` as silent, at the latest; kNever if it does not.
  nanoseconds silent_since(std::uint32_t node, std::uint32_t other) const {
    nanoseconds since = apart(node, other) ? severed_at_ : kNever;
    for (const auto& [from, to] : lives_[other].stops) {
      const bool long_enough = to - from > kPeerTimeout && !all_stop_;
      if (long_enough && from + kPeerTimeout <= now_) {
        since = std::min<nanoseconds>(since, from + kPeerTimeout);
      }
    }
    return since;
  }
  bool is_gone(std::uint32_t rank) const {
    const Life life = life_of(rank);
    return life.died != kNever || life.leaves != kNever;
  }
  /// Returns whether the ranks `here` may go on without the ranks `silent`.
  static bool may_go_on(const RankSet& here, const RankSet& silent) {
    if (here.count() != silent.count()) return here.count() > silent.count();
    return silent.empty() || here.lowest() < silent.lowest();
  }

  // Checks that all parts are there; returns the time of the last part.
  nanoseconds check_parts(std::uint32_t node, const RankSet& expected,
                          const Gatherings::Answer& answer) {
    require(answer.sum.arrived == expected, "a gathering without all parts");
    require(answer.sum.blobs.size() == expected.count(), "a gathering without all blobs");
    nanoseconds last{0};
    for (const std::uint32_t rank : expected.ranks()) {
      const auto call = calls_.find({answer.key, rank});
      require(call != calls_.end(), "a gathering with a part that nobody said");
      require(answer.sum.blobs.at(rank) == std::to_string(rank), "a gathering with a wrong part");
      last = std::max(last, call->second.said);
    }
    for (const std::uint32_t one : (expected & roster_->nodes[node].ranks).ranks()) {
      const nanoseconds said = calls_.at({answer.key, one}).said;
      schedule(2 * reach(), [=, this] {  // by then the root has the answer
        for (const std::uint32_t other : expected.ranks()) {
          met_[{one, other}] = std::max(met_[{one, other}], said);
        }
      });
    }
    return last;
  }
  void check_survivors(std::uint32_t node, std::uint32_t rank, const Gatherings::Answer& answer) {
    Call& call = calls_.at({answer.key, rank});
    const RankSet& arrived = answer.sum.arrived;
    require(call.members.contains(arrived), "survivors that are no members");
    if (lives_[node].leaves != kNever) return;  // others may first have heard that the node leaves
    require(arrived.contains(rank), "survivors without one that goes on");
    nanoseconds since = check_parts(node, arrived, answer), most{0};
    const RankSet missing = call.members - arrived;
    RankSet silent;
    bool forsakes = false;  // the survivors leave out living members beyond a cut
    for (const std::uint32_t each : missing.ranks()) {
      const std::uint32_t its = roster_->node_of[each];
      const Life life = life_of(each);
      const nanoseconds silence = silent_since(node, its);
      require(is_gone(each) || silence <= now_,
              "rank " + std::to_string(each) + " lives and is left out");
      forsakes = forsakes || (apart(node, its) && life.died == kNever);
      if (!is_gone(each)) silent |= {each};
      if (silence != kNever) {
        since = std::max(since, silence);
        most = kPeerTimeout + seconds(5);  // until no rank is in doubt
      }
      if (is_gone(each)) since = std::max(since, std::min(life.died, life.leaves));
      if (life.leaves != kNever) most = std::max<nanoseconds>(most, Relay::kTogether);
    }
    require(silent.empty() || may_go_on(arrived, silent), "the smaller part goes on");
    ++counts_.events[missing.empty()  ? "survivors that are all"
                     : silent.empty() ? "survivors without dead"
                                      : "survivors without silent ones"];
    for (const auto& [which, other] : calls_) {
      if (!(which.first == answer.key) || !other.survivors || *other.survivors == arrived) continue;
      const bool missed = severed_at_ <= now_ || lives_[node].longest_stop() > seconds(0);
      if (missed && lives_[other.node].died != kNever) continue;  // all nodes that knew may be dead
      require(!(*other.survivors & arrived).empty(), "two parts go on in one gathering");
      require(out_of_reach(node) || out_of_reach(other.node) || apart(node, other.node),
              "survivors " + arrived.text() + " differ from those of rank " +
                  std::to_string(which.second));
    }
    call.survivors = arrived;
    const bool one_side = std::ranges::none_of(
        arrived.ranks(), [&](std::uint32_t each) { return apart(node, roster_->node_of[each]); });
    if (forsakes && one_side) {
      auto& sides = alone_[answer.key.group[0] - 1u];
      sides.insert(severed_.count(node) != 0);
      require(sides.size() == 1, "both sides of a cut network go on");
    }
    in_time(node, since, most, "survivors");
  }
  void check_reason(std::uint32_t node, std::uint32_t rank, const Gatherings::Answer& answer) {
    require(!answer.why.message().empty(), "a reason without a text");
    const Call& mine = calls_.at({answer.key, rank});
    const RankSet& members = mine.members;
    const nanoseconds own = mine.said;
    const bool lenient = lenient_.count(answer.key.group[0] - 1u) != 0;
    if (answer.why.code() == Code::kUnavail && lenient) return check_refused_part(node, members);
    if (answer.why.code() == Code::kRemote) {
      require(!lenient, "survivors do not go on: " + answer.why.message());
      const auto culprit = static_cast<std::uint32_t>(answer.why.culprit());
      require(members.contains(culprit), "a reason that names no member");
      const std::uint32_t its = roster_->node_of[culprit];
      require(is_gone(culprit) || out_of_reach(its) || apart(node, its),
              "a reason that names a member that lives");
      nanoseconds since = own;  // a stopped node counts as dead after a silence
      for (const auto& [from, to] : lives_[its].stops) {
        if (to - from > kPeerTimeout) since = std::max<nanoseconds>(since, from + kPeerTimeout);
      }
      if (apart(node, its)) since = std::max<nanoseconds>(since, severed_at_ + kPeerTimeout);
      return in_time(node, since, kLateAfter + milliseconds(600), "a reason");
    }
    if (is_refusal(answer.why)) return check_refusal(node, own, answer);
    require(answer.why.code() == Code::kTimeout, "a wrong reason: " + answer.why.message());
    nanoseconds first = own;
    for (const std::uint32_t each : members.ranks()) {
      const auto call = calls_.find({answer.key, each});
      if (call != calls_.end()) first = std::min(first, call->second.said);
    }
    require(now_ >= first + mine.patience, "a deadline that is too early");
    const auto came_by = [&](std::uint32_t each, nanoseconds when) {
      const auto call = calls_.find({answer.key, each});
      return call != calls_.end() && call->second.said < when;
    };
    // A relay waits for other members below it before it sends a partial sum.
    const std::vector<std::uint32_t> awaited = answer.sum.awaited().ranks();
    nanoseconds due = first + mine.patience - repair_;
    if (!std::ranges::all_of(awaited, [&](auto each) { return came_by(each, due); })) {
      due -= kLateAfter;
    }
    for (const std::uint32_t each : awaited) {
      const std::uint32_t its = roster_->node_of[each];
      const bool came = came_by(each, due);
      const bool quiet = std::ranges::none_of(
          faults_, [&](nanoseconds when) { return when >= due && when <= now_; });
      const Life life = life_of(each);
      // Nodes on the side without the root try one root after another, which takes up to this long.
      const bool seeks = severed_at_ <= now_ && now_ < severed_at_ + seconds(lives_.size() + 1);
      require(!came || !quiet || seeks || apart(node, its) || life.was_absent(nanoseconds(0), now_),
              "rank " + std::to_string(each) + " came, and is said to be absent");
      const bool blamed = lenient && answer.why.culprit() == static_cast<int>(each);
      const auto alone = lone_.find(each);
      const bool gone = life.died < due || (alone != lone_.end() && alone->second.when < due);
      require(!blamed || !gone || apart(node, its),
              "survivors wait for a rank that is gone: " + std::to_string(each));
    }
    in_time(node, own, mine.patience, "a deadline");
  }
  // Requires that the silent members may be alive and as many as the members here.
  void check_refused_part(std::uint32_t node, const RankSet& members) {
    ++counts_.events["parts that may not go on"];
    RankSet here, silent;
    for (const std::uint32_t each : members.ranks()) {
      const std::uint32_t its = roster_->node_of[each];
      if (silent_since(node, its) <= now_ || !lives_[its].stops.empty()) {
        silent |= {each};
      } else if (!is_gone(each)) {
        here |= {each};
      }
    }
    require(!silent.empty(), "survivors may not go on, though nobody is silent");
    require(here.empty() || !may_go_on(here, silent), "the larger part may not go on");
  }
  // Requires that an awaited rank refused a call after it last met one of the ranks that have come.
  void check_refusal(std::uint32_t node, nanoseconds own, const Gatherings::Answer& answer) {
    ++counts_.events["gatherings that a refused call ends"];
    const auto culprit = static_cast<std::uint32_t>(answer.why.culprit());
    require(answer.sum.awaited().contains(culprit), "a refused call of a rank that has come");
    const auto refused = refused_.find({kEverything, culprit});
    require(refused != refused_.end(), "a refused call that nobody made alone");
    const Life life = life_of(culprit);
    const bool lenient = lenient_.count(answer.key.group[0] - 1u) != 0;
    const nanoseconds first = first_of_.try_emplace(answer.key, now_).first->second;
    require(!lenient || std::min(life.died, life.left) > first - repair_ - 2 * reach(),
            "survivors wait for a rank that is gone, and has refused a call");
    const RankSet came = answer.sum.arrived;
    // A rank that met the culprit in another group after the refused call ignores that call. So the
    // call ends the gathering only when a rank comes that does not ignore it.
    nanoseconds counts = kNever;
    for (const std::uint32_t each : came.ranks()) {
      const nanoseconds said = calls_.at({answer.key, each}).said, met = met_[{culprit, each}];
      for (const nanoseconds when : refused->second) {
        if (when > met) counts = std::min(counts, std::max(when, said));
      }
    }
    const bool since = counts != kNever;
    require(since || first < now_ - 2 * reach() || last_fault() != nanoseconds(0),
            "a refused call of long ago");
    in_time(node, std::max(own, since ? counts : refused->second.front()),
            kLateAfter + milliseconds(600), "a refused call");
  }

  std::vector<nanoseconds> faults_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, RankSet> smaller_;  // lists by group and rank
  std::map<std::uint32_t, std::set<bool>> alone_;  // by group: the sides of a cut that go on
  // By pair of ranks: the first one's last successful call for a group with the second one.
  std::map<std::pair<std::uint32_t, std::uint32_t>, nanoseconds> met_;
  std::map<Gatherings::Key, nanoseconds> first_of_;  // first news of a refused call
};

}  // namespace hccl::control
