// The words that ranks of a virtual world send and receive, and the rules for these words. The
// oracle knows all events, and uses no code of the relays.
#pragma once

#include <optional>
#include <tuple>

#include "tests/control/virtual_world.h"

namespace hccl::control {

inline constexpr seconds kPatience{4};     // of gatherings
inline constexpr seconds kReportsMeet{2};  // the root waits so long for a second report
inline constexpr seconds kWordsGoUp{2};    // a relay waits so long for members below it
inline constexpr milliseconds kWaitsEach{400}, kWaitsMerge{100};

/// How often what happened, so that the simulation does not grow empty; and the longest times that
/// something took after the last fault, by kind of world and what it was.
struct Counts {
  std::map<std::string, std::uint64_t> events;
  std::map<std::pair<int, std::string>, nanoseconds> longest;
};

inline Uuid scope_of(std::uint32_t number) { return {static_cast<std::uint8_t>(1 + number), 9}; }

class Oracle : public World {
 public:
  Oracle(std::uint64_t seed, bool trace, Counts& counts) : World(seed, trace), counts_(counts) {}

 protected:
  static constexpr Uuid kWaits{77}, kDiffers{78};

  // ---- what ranks say ----

  void gather(std::uint32_t group, std::uint32_t rank, std::uint64_t number) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (lives_[node].leaves != kNever) return;
      say("rank " + std::to_string(rank) + " of " + name(node) + " gathers " +
          std::to_string(group + 1) + "/" + std::to_string(number));
      const Gatherings::Key key{scope_of(group), number};
      Gathering part;
      part.arrived = {rank};
      part.members.add({rank, groups_[group]});
      part.patience = kPatience;
      part.blobs = {{rank, std::to_string(rank)}};
      calls_[{key, rank}] = {node, now_, {}};
      take(node, relay(node).gather(key, part, time()));
    });
  }
  void report(std::uint32_t rank, std::uint32_t scope, Code code, std::uint32_t culprit) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      const Status why(code, "seen by " + std::to_string(rank), static_cast<int>(culprit));
      say("rank " + std::to_string(rank) + " reports " + std::to_string(scope));
      reports_.push_back({scope_of(100 + scope), node, now_, why.message()});
      take(node, relay(node).report(rank, scope_of(100 + scope), why, time()));
    });
  }
  /// The rank waits for another one, in a call that differs from the other ranks' or not.
  void wait(std::uint32_t rank, const Uuid& scope, std::uint8_t call, nanoseconds until) {
    const std::uint32_t node = roster_->node_of[rank];
    if (now_ > until) return;
    at(node, [=, this] {
      const Heard& heard = heard_[node];
      if (heard.failures.count(scope) != 0 || heard.deaths.contains(awaited_)) return;
      if (lives_[node].leaves != kNever) return;
      ++counts_.events["waits"];
      const Wait wait{scope, 7, {call}, "call " + std::to_string(call), {rank}, {awaited_}};
      waits_[scope][call][node] = now_;
      take(node, relay(node).waits(wait, time()));
      schedule(kWaitsEach, [=, this] { this->wait(rank, scope, call, until); });
    });
  }
  /// The rank refuses a call for a group, or in the place in which others wait. `alone`: others do
  /// not make the same mistake.
  void refuse(std::uint32_t rank, const Uuid& scope, bool alone) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (lives_[node].leaves != kNever) return;
      say("rank " + std::to_string(rank) + " refuses a call");
      if (alone) refused_[{scope, rank}].push_back(now_);
      take(node, relay(node).refused(rank, scope, scope == kEverything ? 0 : 7, "bad", time()));
    });
  }
  /// Something has happened after which the tree may need repair_ to be right again.
  void fault(const std::string& what) {
    ++counts_.events[what];
    faults_.push_back(now_);
  }

  // ---- what ranks hear ----

  void hear(std::uint32_t node, const News& news) override {
    Heard& heard = heard_[node];
    for (const std::uint32_t dead : news.dead.ranks()) {
      say(name(node) + " hears that " + name(dead) + " is dead");
      require_dead(node, dead);
      heard.gone.emplace(dead, now_);
    }
    for (const std::uint32_t left : news.left.ranks()) {
      require(lives_[left].leaves != kNever, name(left) + " is said to have left");
      heard.gone.emplace(left, now_);
    }
    for (const auto& [key, verdict] : news.verdicts) {
      if (key.first == kEverything) {
        const auto rank = static_cast<std::uint32_t>(key.second);
        require_dead(node, roster_->node_of.at(rank));
        heard.deaths |= {rank};
        continue;
      }
      say(name(node) + " hears: " + verdict.why.message());
      require(is_true(key.first, verdict.why), "nobody caused: " + verdict.why.message());
      if (!heard.failures.emplace(key.first, std::pair{now_, verdict.why}).second) continue;
      if (is_refusal(verdict.why)) ++counts_.events["verdicts on refused calls"];
      ++counts_.events["verdicts"];
    }
  }
  void hear(std::uint32_t node, const Gatherings::Answer& answer) override {
    for (const std::uint32_t rank : roster_->nodes[node].ranks.ranks()) {
      const auto at = calls_.find({answer.key, rank});
      if (at == calls_.end() || at->second.answered) continue;  // a rank heeds the first answer
      at->second.answered = true;
      say("rank " + std::to_string(rank) + ": gathering " + std::to_string(answer.key.group[0]) +
          "/" + std::to_string(answer.key.number) + " " +
          (answer.why.ok() ? "is whole" : answer.why.message()));
      ++counts_.events[answer.why.ok() ? "whole gatherings" : "other gatherings"];
      if (answer.why.ok()) {
        check_whole(node, answer);
        went_on(answer.key.group[0] - 1u, rank, answer.key.number + 1);
      } else {
        check_reason(node, rank, answer);
      }
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
      const bool came = call != calls_.end() && call->second.said + kWordsGoUp + repair_ < now_;
      require(!came || last_fault() != nanoseconds(0),
              "rank " + std::to_string(rank) + " came, and is said to be late");
      require(groups_[late.key.group[0] - 1u].contains(rank), "a late rank is no member");
    }
  }
  void over(std::uint32_t node) override {
    const Life& life = lives_[node];
    require(life.leaves != kNever || out_of_reach(node), name(node) + " was expelled");
    if (life.leaves != kNever) in_time(node, life.leaves, seconds(1) + Relay::kTogether, "leave");
  }
  /// The rank's gathering was whole, and this is the number of the next one.
  virtual void went_on(std::uint32_t group, std::uint32_t rank, std::uint64_t number) = 0;

  // ---- what must hold ----

  /// Whether the node may count as dead though it runs.
  bool out_of_reach(std::uint32_t node) const {
    return (lives_[node].longest_stop() > kPeerTimeout && !all_stop_) || severed_.count(node) != 0;
  }
  void check_end() {
    std::vector<std::uint32_t> here;
    for (std::uint32_t node = 0; node < lives_.size(); ++node) {
      if (runs(node) && !out_of_reach(node)) here.push_back(node);
      require(!runs(node) || out_of_reach(node) || lives_[node].leaves == kNever,
              name(node) + " leaves and is never told that it may go");
    }
    for (const auto& [which, call] : calls_) {
      const bool waits = !call.answered && std::ranges::find(here, call.node) != here.end();
      require(!waits, "rank " + std::to_string(which.second) + " waits for ever in gathering " +
                          std::to_string(which.first.group[0]) + "/" +
                          std::to_string(which.first.number));
    }
    if (here.empty()) return;
    check_tree(here);
    if (!roster_->node_of.empty()) check_waits(here);
    for (const std::uint32_t node : here) check_heard(node, here.front());
  }

  struct Call {
    std::uint32_t node = 0;
    nanoseconds said{};
    bool answered = false;
  };
  struct Heard {
    std::map<std::uint32_t, nanoseconds> gone;                // nodes, and when this was heard
    RankSet deaths;                                           // ranks, with the reason
    std::map<Uuid, std::pair<nanoseconds, Status>> failures;  // the first of each communicator
  };
  struct Reported {
    Uuid scope;
    std::uint32_t node;
    nanoseconds when;
    std::string text;
  };

  Counts& counts_;
  int kind_ = 0;                  // of the world
  nanoseconds repair_{};          // how long the tree may need after a fault
  bool all_stop_ = false;         // at once, so that nobody is out of reach
  bool may_miss_leaves_ = false;  // a node that leaves may go before anybody heeds it
  std::vector<RankSet> groups_;
  std::uint32_t awaited_ = 0;        // by all that wait
  std::set<std::uint32_t> severed_;  // the network kept them from most others for too long
  std::map<std::uint32_t, Heard> heard_;

 private:
  void require_dead(std::uint32_t node, std::uint32_t dead) const {
    const Life& life = lives_[dead];
    require(life.died != kNever || out_of_reach(dead) || (may_miss_leaves_ && life.left != kNever),
            name(dead) + " lives and is called dead, says " + name(node));
  }
  static bool is_refusal(const Status& why) {
    return why.message().find("was refused: bad") != std::string::npos;
  }
  bool is_true(const Uuid& scope, const Status& why) const {
    if (scope == kWaits || scope == kDiffers) {
      const bool left = lives_[roster_->node_of[awaited_]].leaves != kNever;
      const bool refused = is_refusal(why) && refused_.count({scope, awaited_}) != 0;
      return ((left || refused) && why.culprit() == static_cast<int>(awaited_)) ||
             (scope == kDiffers && why.message().find("EI0005") == 0 && !is_refusal(why));
    }
    return std::ranges::any_of(reports_, [&](const Reported& each) {
      return each.scope == scope && why.message().find(each.text) == 0;
    });
  }
  nanoseconds last_fault() const { return faults_.empty() ? nanoseconds(0) : faults_.back(); }
  /// An orphan asks the root and each successor for 1 s if they are stopped. repair_ has room for
  /// one of them.
  nanoseconds asks_stopped(nanoseconds from, nanoseconds to) const {
    const auto stopped = std::ranges::count_if(lives_, [&](const Life& life) {
      return std::ranges::any_of(life.stops, [&](const auto& each) {
        return each.second - each.first > seconds(1) && each.first <= to && each.second >= from;
      });
    });
    return seconds(std::max<std::int64_t>(0, stopped - 1));
  }
  /// What the node hears now must come in this time after `since` or after the last fault.
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
  void check_whole(std::uint32_t node, const Gatherings::Answer& answer) {
    const RankSet& members = groups_[answer.key.group[0] - 1u];
    require(answer.sum.arrived == members, "a gathering without all parts");
    require(answer.sum.blobs.size() == members.count(), "a gathering without all blobs");
    nanoseconds last{0};
    for (const std::uint32_t rank : members.ranks()) {
      const auto call = calls_.find({answer.key, rank});
      require(call != calls_.end(), "a gathering with a part that nobody said");
      require(answer.sum.blobs.at(rank) == std::to_string(rank), "a gathering with a wrong part");
      last = std::max(last, call->second.said);
    }
    for (const std::uint32_t one : (members & roster_->nodes[node].ranks).ranks()) {
      const nanoseconds said = calls_.at({answer.key, one}).said;
      schedule(2 * reach(), [=, this] {  // the root knows
        for (const std::uint32_t other : members.ranks()) {
          met_[{one, other}] = std::max(met_[{one, other}], said);
        }
      });
    }
    in_time(node, last, seconds(0), "an answer");
  }
  void check_reason(std::uint32_t node, std::uint32_t rank, const Gatherings::Answer& answer) {
    require(!answer.why.message().empty(), "a reason without a text");
    const RankSet& members = groups_[answer.key.group[0] - 1u];
    const nanoseconds own = calls_.at({answer.key, rank}).said;
    if (answer.why.code() == Code::kRemote) {
      const auto culprit = static_cast<std::uint32_t>(answer.why.culprit());
      require(members.contains(culprit), "a reason that names no member");
      const Life& life = lives_[roster_->node_of[culprit]];
      require(
          life.died != kNever || life.leaves != kNever || out_of_reach(roster_->node_of[culprit]),
          "a reason that names a member that lives");
      nanoseconds since = own;  // a node that is stopped counts as dead after its silence
      for (const auto& [from, to] : life.stops) {
        if (to - from > kPeerTimeout) since = std::max<nanoseconds>(since, from + kPeerTimeout);
      }
      return in_time(node, since, kWordsGoUp + milliseconds(600), "a reason");
    }
    if (is_refusal(answer.why)) return check_refusal(node, own, answer);
    require(answer.why.code() == Code::kTimeout, "a wrong reason: " + answer.why.message());
    nanoseconds first = own;
    for (const std::uint32_t each : members.ranks()) {
      const auto call = calls_.find({answer.key, each});
      if (call != calls_.end()) first = std::min(first, call->second.said);
    }
    require(now_ >= first + kPatience, "a deadline that is too early");
    const auto came_by = [&](std::uint32_t each, nanoseconds when) {
      const auto call = calls_.find({answer.key, each});
      return call != calls_.end() && call->second.said < when;
    };
    // A relay waits for other members below it before it says who came.
    const std::vector<std::uint32_t> awaited = answer.sum.awaited().ranks();
    nanoseconds due = first + kPatience - repair_;
    if (!std::ranges::all_of(awaited, [&](auto each) { return came_by(each, due); })) {
      due -= kWordsGoUp;
    }
    for (const std::uint32_t each : awaited) {
      const bool came = came_by(each, due);
      const bool quiet = std::ranges::none_of(
          faults_, [&](nanoseconds when) { return when >= due && when <= now_; });
      require(!came || !quiet || lives_[roster_->node_of[each]].was_absent(nanoseconds(0), now_),
              "rank " + std::to_string(each) + " came, and is said to be absent");
    }
    in_time(node, own, kPatience, "a deadline");
  }
  // An awaited rank has refused a call since it and one that has come last met.
  void check_refusal(std::uint32_t node, nanoseconds own, const Gatherings::Answer& answer) {
    ++counts_.events["gatherings that a refused call ends"];
    const auto culprit = static_cast<std::uint32_t>(answer.why.culprit());
    require(answer.sum.awaited().contains(culprit), "a refused call of a rank that has come");
    const auto refused = refused_.find({kEverything, culprit});
    require(refused != refused_.end(), "a refused call that nobody made alone");
    const RankSet came = answer.sum.arrived;
    first_of_.try_emplace(answer.key, now_);
    // Ranks that have met the culprit since, in another group, wait until one comes that has not.
    nanoseconds counts = kNever;
    for (const std::uint32_t each : came.ranks()) {
      const nanoseconds said = calls_.at({answer.key, each}).said, met = met_[{culprit, each}];
      for (const nanoseconds when : refused->second) {
        if (when > met) counts = std::min(counts, std::max(when, said));
      }
    }
    const bool since = counts != kNever;
    require(since || first_of_[answer.key] < now_ - 2 * reach() || last_fault() != nanoseconds(0),
            "a refused call of long ago");
    in_time(node, std::max(own, since ? counts : refused->second.front()),
            kWordsGoUp + milliseconds(600), "a refused call");
  }
  void check_heard(std::uint32_t node, std::uint32_t first) {
    const Heard &its = heard_[node], &other = heard_[first];
    for (std::uint32_t gone = 0; gone < lives_.size(); ++gone) {
      const Life& life = lives_[gone];
      const bool stopped = !life.stops.empty() && life.stops.back().second == kNever;
      if (runs(gone) && !stopped && severed_.count(gone) == 0) continue;
      const auto known = its.gone.find(gone);
      require(known != its.gone.end(), name(node) + " never hears of the end of " + name(gone));
      if (life.died == kNever || stopped || severed_.count(gone) != 0) continue;
      in_time(node, life.died, seconds(0), "a death", known->second);
    }
    for (const auto& [scope, failure] : other.failures) {
      const auto same = its.failures.find(scope);
      require(same != its.failures.end(), name(node) + " never hears of a failure");
      const Status &a = failure.second, &b = same->second.second;
      require(a.culprit() == b.culprit() && a.message() == b.message(),
              name(node) + " and " + name(first) + " hear of different culprits: " + b.message() +
                  " and " + a.message());
    }
    require(its.failures.size() == other.failures.size(), "a failure that some never hear");
    for (const auto& [scope, reporter, when, text] : reports_) {
      const Life& life = lives_[reporter];
      if (life.was_absent(nanoseconds(0), kNever - seconds(1)) || severed_.count(reporter))
        continue;
      const auto failure = its.failures.find(scope);
      require(failure != its.failures.end(), "a report that is lost");
      in_time(node, when, kReportsMeet, "a verdict", failure->second.first);
    }
  }
  /// Nodes that still wait for a rank that left, or in a call that differs from others' calls.
  void check_waits(const std::vector<std::uint32_t>& here) {
    const Life& life = lives_[roster_->node_of[awaited_]];
    const auto still = [&](const std::map<std::uint32_t, nanoseconds>& waiting, nanoseconds since) {
      return std::ranges::any_of(waiting, [&](const auto& each) {
        return each.second > since + 2 * kWaitsEach + depth_ * kWaitsMerge + repair_ &&
               std::ranges::find(here, each.first) != here.end();
      });
    };
    const nanoseconds fault = last_fault();
    if (life.left != kNever && life.died == kNever) {
      const nanoseconds since = std::max(life.left, fault);
      require(since == kNever || !still(waits_[kWaits][1], since), "some wait for one that left");
    }
    const auto refused = refused_.find({kWaits, awaited_});
    if (refused != refused_.end() && !life.was_absent(nanoseconds(0), kNever - seconds(1))) {
      const nanoseconds since = std::max(refused->second.front() + milliseconds(500), fault);
      require(!still(waits_[kWaits][1], since), "some wait for one that refused a call");
    }
    auto& calls = waits_[kDiffers];
    require(!still(calls[1], fault) || !still(calls[2], fault), "some wait in different calls");
  }
  void check_tree(const std::vector<std::uint32_t>& here) {
    std::set<std::uint32_t> roots;
    for (const std::uint32_t node : here) {
      if (relay(node).state() == Relay::State::kRoot) roots.insert(node);
      require(relay(node).state() != Relay::State::kOrphan, name(node) + " is an orphan for ever");
      require(relay(node).root() == relay(here.front()).root(),
              name(node) + " and " + name(here.front()) + " obey different roots");
    }
    require(roots.size() == 1, std::to_string(roots.size()) + " roots");
    RankSet all;
    for (std::uint32_t node = 0; node < lives_.size(); ++node) {
      if (runs(node) && !is_stopped(node)) all |= {node};
    }
    require(relay(*roots.begin()).below() == all, "the root does not know who is there");
    require(open_lines() + 1 == all.count(), "the tree has " + std::to_string(open_lines()) +
                                                 " lines for " + std::to_string(all.count()) +
                                                 " nodes");
  }

  std::vector<nanoseconds> faults_;
  std::map<std::pair<Gatherings::Key, std::uint32_t>, Call> calls_;
  std::vector<Reported> reports_;
  // By scope and rank: when it refused calls alone. By ranks: when the first last called for a
  // group with the second, and got it.
  std::map<std::pair<Uuid, std::uint32_t>, std::vector<nanoseconds>> refused_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, nanoseconds> met_;
  std::map<Gatherings::Key, nanoseconds> first_of_;  // when it was first heard of a refused call
  // By communicator and call: nodes that wait, and when they last said so.
  std::map<Uuid, std::map<int, std::map<std::uint32_t, nanoseconds>>> waits_;
};

}  // namespace hccl::control
