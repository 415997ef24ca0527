// The messages that ranks of a virtual world send and receive, and the rules for these messages.
// The oracle sees all events, and uses no code of the relays.
#pragma once

#include <tuple>

#include "tests/control/gathering_oracle.h"

namespace hccl::control {

inline constexpr seconds kReportsMeet{2};  // the root waits this long for a second report
inline constexpr milliseconds kWaitsEach{400}, kWaitsMerge{100};

class Oracle : public GatheringOracle {
 public:
  using GatheringOracle::GatheringOracle;

 protected:
  static constexpr Uuid kWaits{77}, kDiffers{78};

  // ---- statements of ranks ----

  void report(std::uint32_t rank, std::uint32_t scope, Code code, std::uint32_t culprit) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (lone_.count(rank) != 0) return;
      const Status why(code, "seen by " + std::to_string(rank), static_cast<int>(culprit));
      say("rank " + std::to_string(rank) + " reports " + std::to_string(scope));
      reports_.push_back({nth_scope(100 + scope), node, now_, why.message()});
      take(node, relay(node).report(rank, nth_scope(100 + scope), why, time()));
    });
  }
  /// The rank waits for `awaited_`. Its call may differ from the other ranks' calls.
  void wait(std::uint32_t rank, const Uuid& scope, std::uint8_t call, nanoseconds until) {
    const std::uint32_t node = roster_->node_of[rank];
    if (now_ > until) return;
    at(node, [=, this] {
      const Heard& heard = heard_[node];
      if (heard.failures.count(scope) != 0 || heard.deaths.count(awaited_) != 0) return;
      if (!speaks(rank)) return;
      ++counts_.events["waits"];
      const Wait wait{scope, 7, {call}, "call " + std::to_string(call), {rank}, {awaited_}};
      waits_[scope][call][node] = now_;
      take(node, relay(node).waits(wait, time()));
      schedule(kWaitsEach, [=, this] { this->wait(rank, scope, call, until); });
    });
  }
  /// The rank refuses a call for a group, or another call in which other ranks wait. `alone`: no
  /// other rank makes the same mistake.
  void refuse(std::uint32_t rank, const Uuid& scope, bool alone) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (!speaks(rank)) return;
      say("rank " + std::to_string(rank) + " refuses a call");
      if (alone) refused_[{scope, rank}].push_back(now_);
      take(node, relay(node).refused(rank, scope, scope == kEverything ? 0 : 7, "bad", time()));
    });
  }

  // ---- messages to ranks ----

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
    for (const std::uint32_t rank : news.left_ranks.ranks()) {
      const auto alone = lone_.find(rank);
      require(alone != lone_.end() && alone->second.leaves,
              "rank " + std::to_string(rank) + " is said to have left");
      heard.left_ranks.emplace(rank, now_);
    }
    for (const auto& [key, verdict] : news.verdicts) {
      if (key.first == kEverything) {
        const auto rank = static_cast<std::uint32_t>(key.second);
        require_dead_rank(node, rank);
        heard.deaths.emplace(rank, now_);
        continue;
      }
      say(name(node) + " hears: " + verdict.why.message());
      require(is_true(key.first, verdict.why), "nobody caused: " + verdict.why.message());
      if (!heard.failures.emplace(key.first, std::pair{now_, verdict.why}).second) continue;
      if (is_refusal(verdict.why)) ++counts_.events["verdicts on refused calls"];
      ++counts_.events["verdicts"];
    }
  }
  /// Requires that a rank gets a death before the error that follows from that death.
  void hear(std::uint32_t node, const Gatherings::Answer& answer) override {
    if (answer.why.message().ends_with(" died or was cut off")) {
      const auto rank = static_cast<std::uint32_t>(answer.why.culprit());
      require(heard_[node].deaths.count(rank) != 0,
              name(node) + " hears first what follows from: " + answer.why.message());
    }
    GatheringOracle::hear(node, answer);
  }
  using GatheringOracle::hear;
  void over(std::uint32_t node) override {
    const Life& life = lives_[node];
    require(life.leaves != kNever || out_of_reach(node), name(node) + " was expelled");
    if (life.leaves != kNever) in_time(node, life.leaves, seconds(1) + Relay::kTogether, "leave");
  }

  // ---- rules that must hold ----

  void check_end() {
    std::vector<std::uint32_t> here;
    for (std::uint32_t node = 0; node < lives_.size(); ++node) {
      if (runs(node) && !out_of_reach(node)) here.push_back(node);
      require(!runs(node) || out_of_reach(node) || lives_[node].leaves == kNever,
              name(node) + " leaves and is never told that it may go");
    }
    for (const auto& [which, call] : calls_) {
      const bool waits = !call.answered && lone_.count(which.second) == 0 &&
                         std::ranges::find(here, call.node) != here.end();
      require(!waits, "rank " + std::to_string(which.second) + " waits for ever in gathering " +
                          std::to_string(which.first.group[0]) + "/" +
                          std::to_string(which.first.number));
    }
    check_agreement(here);
    if (here.empty()) return;
    check_tree(here);
    if (!roster_->node_of.empty()) check_waits(here);
    for (const std::uint32_t node : here) check_heard(node, here.front());
  }

  struct Heard {
    std::map<std::uint32_t, nanoseconds> gone;                // nodes, and when this was heard
    std::map<std::uint32_t, nanoseconds> deaths, left_ranks;  // the same for ranks
    std::map<Uuid, std::pair<nanoseconds, Status>> failures;  // first of each communicator
  };
  struct Reported {
    Uuid scope;
    std::uint32_t node;
    nanoseconds when;
    std::string text;
  };

  bool may_miss_leaves_ = false;  // a leaving node may be gone before others know
  std::uint32_t awaited_ = 0;     // the rank for which all wait
  std::map<std::uint32_t, Heard> heard_;

 private:
  void require_dead(std::uint32_t node, std::uint32_t dead) const {
    const Life& life = lives_[dead];
    require(life.died != kNever || out_of_reach(dead) || apart(node, dead) ||
                (may_miss_leaves_ && life.left != kNever),
            name(dead) + " lives and is called dead, says " + name(node));
  }
  void require_dead_rank(std::uint32_t node, std::uint32_t rank) const {
    const auto alone = lone_.find(rank);
    if (alone != lone_.end() && !alone->second.leaves) return;
    const std::uint32_t its = roster_->node_of.at(rank);
    require_dead(node, its);
    require(alone == lone_.end() || settled(alone->second.when) >= lives_[its].died,
            "rank " + std::to_string(rank) + " has left alone and is called dead");
  }
  bool is_true(const Uuid& scope, const Status& why) const {
    if (scope == kWaits || scope == kDiffers) {
      const bool left = life_of(awaited_).leaves != kNever;
      const bool refused = is_refusal(why) && refused_.count({scope, awaited_}) != 0;
      return ((left || refused) && why.culprit() == static_cast<int>(awaited_)) ||
             (scope == kDiffers && why.message().find("EI0005") == 0 && !is_refusal(why));
    }
    return std::ranges::any_of(reports_, [&](const Reported& each) {
      return each.scope == scope && why.message().find(each.text) == 0;
    });
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
    for (const auto& [rank, alone] : lone_) check_alone(node, rank, alone);
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
  /// Requires that the other nodes learn that a rank ended alone, unless its process left or died
  /// before they could. If the process died, all its ranks that have not left are dead.
  void check_alone(std::uint32_t node, std::uint32_t rank, const Lone& alone) {
    const std::uint32_t its = roster_->node_of[rank];
    const Life& life = lives_[its];
    const nanoseconds end = alone.leaves ? std::min(life.died, life.leaves) : life.leaves;
    if (out_of_reach(its) || (end != kNever && settled(alone.when) >= end)) return;
    const auto& all = alone.leaves ? heard_[node].left_ranks : heard_[node].deaths;
    const auto known = all.find(rank);
    require(known != all.end(), name(node) + " never hears that rank " + std::to_string(rank) +
                                    (alone.leaves ? " left" : " died") + " alone");
    in_time(node, alone.when, seconds(0), alone.leaves ? "a rank's leave" : "a rank's death",
            known->second);
  }
  /// Requires that no node waits for ever for a rank that left or refused the call, or in a call
  /// that differs from the others' calls.
  void check_waits(const std::vector<std::uint32_t>& here) {
    const Life life = life_of(awaited_);
    const auto still = [&](const std::map<std::uint32_t, nanoseconds>& waiting, nanoseconds since) {
      return std::ranges::any_of(waiting, [&](const auto& each) {
        return each.second > since + 2 * kWaitsEach + depth_ * kWaitsMerge + repair_ &&
               std::ranges::find(here, each.first) != here.end();
      });
    };
    nanoseconds fault = last_fault();
    if (severed_at_ != kNever) fault += kPeerTimeout + seconds(1 + severed_.size());
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
      if (runs(node) && !is_stopped(node) && severed_.count(node) == 0) all |= {node};
    }
    require(relay(*roots.begin()).below() == all, "the root does not know who is there");
    const std::size_t lines = open_lines(severed_);
    require(lines + 1 == all.count(), "the tree has " + std::to_string(lines) + " lines for " +
                                          std::to_string(all.count()) + " nodes");
  }

  std::vector<Reported> reports_;
  // By communicator and call: the waiting nodes, and the time of their last report.
  std::map<Uuid, std::map<int, std::map<std::uint32_t, nanoseconds>>> waits_;
};

}  // namespace hccl::control
