// Whole lives of control trees, on virtual time and over a virtual network: nodes that die, leave,
// are stopped and run again, whose ranks gather, report and wait. A seed decides everything, so
// that a seed that fails replays:
//   control_simulation_test --seeds 100000    more worlds
//   control_simulation_test --seed 17         one world, with every event
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hccl/control/relay.h"

namespace hccl::control {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

std::uint64_t g_seeds = 250;
std::optional<std::uint64_t> g_seed;

constexpr seconds kPeerTimeout{6};
constexpr seconds kLongStop{12};  // a shorter one makes no node a dead one
constexpr seconds kActions{10};   // then nothing happens any more
constexpr seconds kEnd{45};
constexpr seconds kPatience{4};  // of gatherings
constexpr std::uint32_t kGroups = 3;
constexpr nanoseconds kNever = nanoseconds::max();

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint32_t below(std::uint64_t end) { return static_cast<std::uint32_t>(bits_() % end); }
  bool percent(unsigned chance) { return below(100) < chance; }
  nanoseconds up_to(nanoseconds most) {
    return nanoseconds(
        static_cast<std::int64_t>(bits_() % (static_cast<std::uint64_t>(most.count()) + 1)));
  }

 private:
  std::mt19937_64 bits_;
};

/// How many worlds had what, so that the simulation does not grow empty.
struct Counts {
  std::uint64_t deaths = 0, leaves = 0, successions = 0, stops = 0, answers = 0, reasons = 0,
                verdicts = 0, waits = 0;
};

struct Process {
  std::unique_ptr<Relay> relay;
  bool dead = false, stopped = false, leaves = false, long_stop = false, any_stop = false;
  nanoseconds stopped_at = kNever, died_at = kNever, left_at = kNever;
  std::vector<std::function<void()>> inbox;    // while it is stopped
  std::uint64_t ticks = 0;                     // the last one that is scheduled
  std::map<Uuid, Status> failures;             // the first of each communicator
  std::map<std::uint32_t, nanoseconds> known;  // nodes that died or left, since when
  Root root;
};

/// A call of gather() by a rank.
struct Call {
  std::uint32_t node = 0;
  nanoseconds by{};
  std::optional<Gatherings::Answer> answer;
};

std::string word_of(Kind kind) {
  static const char* const kWords[] = {"an acknowledgement",
                                       "a beat",
                                       "bye",
                                       "adopt me",
                                       "an offer",
                                       "welcome",
                                       "no",
                                       "news",
                                       "an answer",
                                       "below",
                                       "a part",
                                       "a wait",
                                       "silent",
                                       "a report",
                                       "ends",
                                       "leave"};
  return kWords[static_cast<int>(kind)];
}

Uuid scope_of(std::uint32_t number) { return {static_cast<std::uint8_t>(1 + number), 9}; }

class Simulation {
 public:
  Simulation(std::uint64_t seed, bool trace, Counts& counts)
      : random_(seed),
        trace_(trace),
        counts_(counts),
        delay_(random_.percent(50) ? milliseconds(1) : milliseconds(20)),
        faults_(random_.percent(85)),
        stops_(faults_ && random_.percent(50)) {
    make_roster(1 + random_.below(random_.percent(15) ? 64 : 12));
  }

  void run() {
    seat();
    plan();
    while (!events_.empty() && now_ < kEnd) {
      const auto next = events_.begin();
      now_ = next->first.first;
      const auto event = std::move(next->second);
      events_.erase(next);
      event();
    }
    check_end();
  }

 private:
  // ---- the world ----

  void make_roster(std::uint32_t size) {
    Roster roster;
    roster.hosts.push_back({"here", "", {"10.0.0.1"}});
    std::uint32_t rank = 0;
    const std::uint32_t fan_out = 1 + random_.below(8);
    for (std::uint32_t node = 0; node < size; ++node) {
      const std::uint32_t ranks = random_.percent(70) ? 1 : random_.below(3);
      roster.nodes.push_back({0, node == 0 ? 0 : (node - 1) / fan_out, 100 + node, 0, 0,
                              RankSet::range(rank, rank + ranks)});
      for (std::uint32_t i = 0; i < ranks; ++i) roster.node_of.push_back(node);
      rank += ranks;
    }
    roster_ = std::make_shared<const Roster>(std::move(roster));
    processes_.resize(size);
    for (std::uint32_t node = 0; node < size; ++node) {
      processes_[node].relay = std::make_unique<Relay>(roster_, node, kPeerTimeout, time());
    }
  }
  void seat() {
    for (std::uint32_t node = 1; node < processes_.size(); ++node) {
      const std::uint32_t parent = roster_->nodes[node].parent;
      const LineId id = connect(node, parent);
      take(node, relay(node).seated(id, parent, time()));
      take(parent, relay(parent).seated(id, node, time()));
    }
  }
  Relay& relay(std::uint32_t node) { return *processes_[node].relay; }
  Time time() const { return Time(now_); }
  bool runs(std::uint32_t node) {
    return !processes_[node].dead && relay(node).state() != Relay::State::kOver;
  }
  void say(const std::string& what) const {
    if (trace_) std::cout << static_cast<double>(now_.count()) / 1e9 << " s: " << what << "\n";
  }
  static std::string name(std::uint32_t node) { return "node " + std::to_string(node); }

  void schedule(nanoseconds wait, std::function<void()> event) {
    events_.emplace(std::pair{now_ + wait, ++events_made_}, std::move(event));
  }
  /// What a process does once it runs.
  void at(std::uint32_t node, std::function<void()> event) {
    if (!runs(node)) return;
    if (processes_[node].stopped) {
      processes_[node].inbox.push_back(std::move(event));
    } else {
      event();
    }
  }

  // ---- lines ----

  struct Ends {
    std::uint32_t node[2] = {0, 0};
    nanoseconds last[2]{};  // when the last bytes to each end arrive: bytes do not overtake
  };
  LineId connect(std::uint32_t a, std::uint32_t b) {
    lines_[++last_line_] = {{a, b}, {}};
    return last_line_;
  }
  /// Calls `arrived` at the other end of the line, after what was sent before.
  void carry(std::uint32_t from, LineId id, std::function<void(std::uint32_t)> arrived) {
    Ends& ends = lines_.at(id);
    const int to = ends.node[0] == from ? 1 : 0;
    ends.last[to] = std::max(ends.last[to], now_ + delay_ / 10 + random_.up_to(delay_));
    const std::uint32_t node = ends.node[to];
    schedule(ends.last[to] - now_,
             [this, node, arrived] { at(node, [node, arrived] { arrived(node); }); });
  }
  void hang_up(std::uint32_t node, LineId id) {
    if (!ended_.insert({node, id}).second) return;
    carry(node, id, [this, id](std::uint32_t other) {
      if (ended_.insert({other, id}).second) take(other, relay(other).closed(id, time()));
    });
  }
  void send(std::uint32_t node, LineId id, const std::string& frame) {
    require(ended_.count({node, id}) == 0, name(node) + " writes " +
                                               word_of(static_cast<Kind>(frame[0])) +
                                               " to a line that has ended");
    carry(node, id, [this, id, frame](std::uint32_t other) {
      if (ended_.count({other, id}) != 0) return;
      ByteReader in(frame);
      const auto kind = in.get<Kind>();
      if (kind > Kind::kBeat)
        say("  " + name(other) + " gets " + word_of(kind) + " from " +
            name(lines_.at(id).node[0] + lines_.at(id).node[1] - other));
      static_cast<void>(in.get<std::uint32_t>());
      const Root root{in.get<std::uint32_t>(), in.get<std::uint32_t>()};
      take(other, relay(other).frame(id, frame, time()));
      require(!root.is_later_than(relay(other).root()), name(other) + " obeys an earlier root");
    });
  }
  void dial(std::uint32_t from, std::uint32_t to) {
    schedule(delay_ / 10 + random_.up_to(delay_), [this, from, to] {
      const bool gone = !runs(to);
      const LineId id = gone ? 0 : connect(from, to);
      const nanoseconds back = delay_ / 10 + random_.up_to(delay_);
      if (!gone) lines_.at(id).last[0] = now_ + back;
      schedule(back, [this, from, to, gone, id] {
        at(from, [this, from, to, gone, id] {
          say("  " + name(from) + (gone ? " finds no process of " : " opens a line to ") +
              name(to));
          take(from,
               gone ? relay(from).failed(to, true, time()) : relay(from).opened(id, to, time()));
        });
      });
    });
  }
  /// The kernel closes what a process leaves open.
  void hang_up_all(std::uint32_t node) {
    for (const auto& [id, ends] : lines_) {
      if (ends.node[0] == node || ends.node[1] == node) hang_up(node, id);
    }
  }

  // ---- what relays want ----

  void take(std::uint32_t node, Relay::Step step) {
    Process& process = processes_[node];
    for (const auto& out : step.outs) {
      if (!out.frame.empty()) send(node, out.line, out.frame);
      if (out.close) hang_up(node, out.line);
    }
    for (const std::uint32_t to : step.dials) dial(node, to);
    hear(node, step.heard);
    for (const auto& answer : step.answers) hear(node, answer);
    const Root root = process.relay->root();
    require(!process.root.is_later_than(root), name(node) + " obeys an earlier root again");
    if (!(root == process.root) && root.node == node) {
      ++counts_.successions;
      say(name(node) + " is root " + std::to_string(root.epoch));
    }
    process.root = root;
    if (process.relay->state() == Relay::State::kOver) {
      say(name(node) + " is over");
      require(process.leaves || process.long_stop, name(node) + " was expelled");
      if (process.left_at == kNever) process.left_at = now_;
      hang_up_all(node);
      return;
    }
    const nanoseconds next = process.relay->next().time_since_epoch();
    if (process.relay->next() == Time::max()) return;
    const std::uint64_t tick = ++process.ticks;
    schedule(std::max(nanoseconds(0), next - now_), [this, node, tick] {
      at(node, [this, node, tick] {
        if (tick == processes_[node].ticks) take(node, relay(node).tick(time()));
      });
    });
  }
  void hear(std::uint32_t node, const News& news) {
    Process& process = processes_[node];
    for (const std::uint32_t dead : news.dead.ranks()) {
      const Process& its = processes_[dead];
      say(name(node) + " hears that " + name(dead) + " is dead");
      require(its.dead || its.long_stop || (its.left_at != kNever && stops_),
              name(dead) + " lives and is called dead, says " + name(node));
      process.known.emplace(dead, now_);
    }
    for (const std::uint32_t left : news.left.ranks()) {
      require(processes_[left].leaves, name(left) + " is said to have left");
      process.known.emplace(left, now_);
    }
    for (const auto& [key, verdict] : news.verdicts) {
      if (key.first == kEverything) {
        const auto rank = static_cast<std::uint32_t>(key.second);
        require(rank < roster_->node_of.size(), "a death without a rank");
        const Process& its = processes_[roster_->node_of[rank]];
        require(its.dead || its.long_stop || (its.left_at != kNever && stops_),
                "rank " + std::to_string(rank) + " is called dead");
        continue;
      }
      say(name(node) + " hears: " + verdict.why.message());
      require(is_true(key.first, verdict.why),
              "a verdict that nobody caused: " + verdict.why.message());
      if (process.failures.emplace(key.first, verdict.why).second) ++counts_.verdicts;
    }
  }
  void hear(std::uint32_t node, const Gatherings::Answer& answer) {
    for (const std::uint32_t rank : roster_->nodes[node].ranks.ranks()) {
      const auto call = calls_.find({answer.key, rank});
      if (call == calls_.end()) continue;
      if (call->second.answer) continue;  // a rank heeds the first one
      require(now_ <= call->second.by + slack(node),
              "rank " + std::to_string(rank) + " hears an answer late");
      call->second.answer = answer;
      ++(answer.why.ok() ? counts_.answers : counts_.reasons);
      say("rank " + std::to_string(rank) + ": gathering " + std::to_string(answer.key.group[0]) +
          "/" + std::to_string(answer.key.number) + " " +
          (answer.why.ok() ? "is whole" : answer.why.message()));
      if (answer.why.ok()) gather_later(answer.key.group[0] - 1u, rank, answer.key.number + 1);
    }
  }

  // ---- what happens ----

  void plan() {
    const auto size = static_cast<std::uint32_t>(processes_.size());
    for (std::uint32_t node = 0; node < size; ++node) {
      const unsigned chance = node == 0 ? 50 : size > 12 ? 8 : 25;
      if (!faults_ || !random_.percent(chance)) continue;
      const nanoseconds when = random_.percent(50) ? seconds(3) + random_.up_to(milliseconds(50))
                                                   : random_.up_to(kActions);
      switch (random_.below(stops_ ? 4 : 2)) {
        case 0:
          schedule(when, [this, node] { die(node); });
          break;
        case 1:
          schedule(when, [this, node] { leave(node); });
          break;
        default:
          schedule(when, [this, node] { stop(node); });
      }
    }
    const auto ranks = static_cast<std::uint32_t>(roster_->node_of.size());
    if (ranks == 0) return;
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      std::vector<std::uint32_t> members;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if (group == 0 || random_.percent(40)) members.push_back(rank);
      }
      groups_.emplace_back(std::move(members));
      for (const std::uint32_t rank : groups_[group].ranks()) gather_later(group, rank, 1);
    }
    for (std::uint32_t i = random_.below(24); i > 0; --i) {
      const std::uint32_t rank = random_.below(ranks), scope = random_.below(12);
      const nanoseconds when = random_.percent(50) ? seconds(3) + random_.up_to(milliseconds(50))
                                                   : random_.up_to(kActions);
      schedule(when, [this, rank, scope] { report(rank, scope); });
    }
    waiting_for_ = random_.below(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (rank != waiting_for_)
        schedule(random_.up_to(milliseconds(400)), [=, this] { wait(rank); });
    }
  }
  void die(std::uint32_t node) {
    if (!runs(node)) return;
    say(name(node) + " dies");
    ++counts_.deaths;
    processes_[node].dead = true;
    processes_[node].died_at = now_;
    hang_up_all(node);
  }
  void leave(std::uint32_t node) {
    at(node, [this, node] {
      if (processes_[node].leaves) return;
      say(name(node) + " leaves");
      ++counts_.leaves;
      processes_[node].leaves = true;
      take(node, relay(node).leave(time()));
    });
  }
  void stop(std::uint32_t node) {
    Process& process = processes_[node];
    if (!runs(node) || process.stopped) return;
    const nanoseconds length[] = {milliseconds(100), milliseconds(600), seconds(4),
                                  kLongStop + seconds(3), kNever};
    const nanoseconds how_long = length[random_.below(5)];
    say(name(node) + " is stopped for " +
        (how_long == kNever ? "ever" : std::to_string(how_long.count() / 1000000) + " ms"));
    ++counts_.stops;
    process.stopped = process.any_stop = true;
    process.stopped_at = now_;
    process.long_stop = how_long >= kLongStop;
    if (how_long != kNever) schedule(how_long, [this, node] { resume(node); });
  }
  void resume(std::uint32_t node) {
    Process& process = processes_[node];
    if (!runs(node)) return;
    say(name(node) + " runs again");
    process.stopped = false;
    if (random_.percent(50)) take(node, relay(node).tick(time()));
    for (const auto& event : std::exchange(process.inbox, {})) at(node, event);
  }
  void gather_later(std::uint32_t group, std::uint32_t rank, std::uint64_t number) {
    if (now_ > kActions) return;
    const nanoseconds when = random_.percent(4)
                                 ? seconds(3)
                                 : random_.up_to(milliseconds(random_.percent(50) ? 5 : 900));
    schedule(when, [=, this] { gather(group, rank, number); });
  }
  void gather(std::uint32_t group, std::uint32_t rank, std::uint64_t number) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      if (processes_[node].leaves) return;
      say("rank " + std::to_string(rank) + " of " + name(node) + " gathers " +
          std::to_string(group + 1) + "/" + std::to_string(number));
      const Gatherings::Key key{scope_of(group), number};
      Gathering part;
      part.arrived = {rank};
      part.members.add({rank, groups_[group]});
      part.patience = kPatience;
      part.blobs = {{rank, std::to_string(rank)}};
      calls_[{key, rank}] = {node, now_ + kPatience, {}};
      take(node, relay(node).gather(key, part, time()));
    });
  }
  void report(std::uint32_t rank, std::uint32_t scope) {
    const std::uint32_t node = roster_->node_of[rank];
    at(node, [=, this] {
      const auto culprit = random_.below(roster_->node_of.size());
      const Status why(random_.percent(60) ? Code::kRemote : Code::kMemory,
                       "seen by " + std::to_string(rank), static_cast<int>(culprit));
      say("rank " + std::to_string(rank) + " reports " + std::to_string(scope) + ", culprit " +
          std::to_string(culprit));
      reported_.insert({scope_of(100 + scope), why.message()});
      reports_.push_back({scope_of(100 + scope), node, now_});
      take(node, relay(node).report(rank, scope_of(100 + scope), why, time()));
    });
  }
  /// All ranks but one wait for this one; if its process leaves, the root tells them.
  void wait(std::uint32_t rank) {
    const std::uint32_t node = roster_->node_of[rank];
    if (now_ > kEnd - seconds(5)) return;
    at(node, [=, this] {
      if (processes_[node].leaves || processes_[node].failures.count(kWaits) != 0) return;
      ++counts_.waits;
      Wait wait{kWaits, 7, {1}, "allreduce", {rank}, {waiting_for_}};
      take(node, relay(node).waits(wait, time()));
      schedule(milliseconds(400), [=, this] { this->wait(rank); });
    });
  }

  // ---- what must hold ----

  static constexpr Uuid kWaits{77};
  bool is_true(const Uuid& scope, const Status& why) {
    if (scope == kWaits)
      return why.culprit() == static_cast<int>(waiting_for_) &&
             processes_[roster_->node_of[waiting_for_]].leaves;
    return std::ranges::any_of(reported_, [&](const auto& each) {
      return each.first == scope && why.message().find(each.second) == 0;
    });
  }
  /// How long a node may wait for what should have come at once.
  nanoseconds slack(std::uint32_t) const {
    if (!stops_) return faults_ ? milliseconds(2500) : milliseconds(500);
    return seconds(25);
  }
  void check_end() {
    std::vector<std::uint32_t> here;  // those that were never out of reach for long
    for (std::uint32_t node = 0; node < processes_.size(); ++node) {
      const Process& process = processes_[node];
      if (process.leaves && !process.dead && !process.long_stop) {
        require(!runs(node), name(node) + " leaves and is never told that it may go");
      }
      if (runs(node) && !process.long_stop) here.push_back(node);
    }
    check_calls(here);
    if (here.empty()) return;
    check_tree(here);
    for (const std::uint32_t node : here) {
      const Process& process = processes_[node];
      for (std::uint32_t other = 0; other < processes_.size(); ++other) {
        const Process& its = processes_[other];
        const bool gone = its.dead || its.left_at != kNever || (its.long_stop && its.stopped);
        if (!gone) continue;
        const auto known = process.known.find(other);
        require(known != process.known.end(),
                name(node) + " never hears of the end of " + name(other));
        if (!its.dead || process.any_stop) continue;
        require(known->second <= its.died_at + (stops_ ? milliseconds(5000) : milliseconds(1500)),
                name(node) + " hears late of the end of " + name(other));
      }
      const Process& first = processes_[here.front()];
      for (const auto& [scope, why] : first.failures) {
        const auto its = process.failures.find(scope);
        require(its != process.failures.end(), name(node) + " never hears of a failure");
        require(its->second.culprit() == why.culprit() && its->second.message() == why.message(),
                name(node) + " and " + name(here.front()) + " hear of different culprits: " +
                    its->second.message() + " and " + why.message());
      }
      require(process.failures.size() == first.failures.size(), "a failure that some never hear");
      for (const auto& [scope, reporter, when] : reports_) {
        const Process& its = processes_[reporter];
        if (its.dead || its.long_stop || its.leaves) continue;
        require(process.failures.count(scope) != 0, "a report that is lost");
      }
    }
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
  }
  void check_calls(const std::vector<std::uint32_t>& here) {
    std::map<Gatherings::Key, Gatherings::Answer> whole;
    for (const auto& [which, call] : calls_) {
      const bool lives = std::ranges::find(here, call.node) != here.end();
      if (!call.answer) {
        require(!lives, "rank " + std::to_string(which.second) + " waits for ever in gathering " +
                            std::to_string(which.first.group[0]) + "/" +
                            std::to_string(which.first.number));
        continue;
      }
      if (!call.answer->why.ok()) {
        require(faults_ || call.answer->why.code() == Code::kTimeout, "a reason without a fault");
        require(!call.answer->why.message().empty(), "a reason without a text");
        continue;
      }
      const RankSet& members = groups_[which.first.group[0] - 1u];
      require(call.answer->sum.arrived == members, "a gathering without all parts");
      require(call.answer->sum.blobs.size() == members.count(), "a gathering without all blobs");
      for (const auto& [rank, blob] : call.answer->sum.blobs) {
        require(blob == std::to_string(rank), "a gathering with a wrong part");
      }
      whole.emplace(which.first, *call.answer);
    }
  }

  Random random_;
  bool trace_;
  Counts& counts_;
  nanoseconds delay_;
  bool faults_, stops_;
  std::shared_ptr<const Roster> roster_;
  std::vector<Process> processes_;
  nanoseconds now_{0};
  std::map<std::pair<nanoseconds, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t events_made_ = 0;
  std::map<LineId, Ends> lines_;
  LineId last_line_ = 0;
  std::set<std::pair<std::uint32_t, LineId>> ended_;
  std::vector<RankSet> groups_;
  std::map<std::pair<Gatherings::Key, std::uint32_t>, Call> calls_;
  std::set<std::pair<Uuid, std::string>> reported_;
  struct Reported {
    Uuid scope;
    std::uint32_t node;
    nanoseconds when;
  };
  std::vector<Reported> reports_;
  std::uint32_t waiting_for_ = 0;
};

TEST(Simulation, HoldsWhateverHappens) {
  Counts counts;
  const std::uint64_t first = g_seed.value_or(1), last = g_seed.value_or(g_seeds);
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed <= last && failed < 20; ++seed) {
    try {
      Simulation(seed, g_seed.has_value(), counts).run();
    } catch (const Violation& violation) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << ": " << violation.what();
    }
  }
  std::cout << counts.deaths << " deaths, " << counts.leaves << " leaves, " << counts.stops
            << " stops, " << counts.successions << " successions, " << counts.answers
            << " whole gatherings, " << counts.reasons << " others, " << counts.verdicts
            << " verdicts heard, " << counts.waits << " waits\n";
  if (g_seed || g_seeds < 100) return;
  for (const auto count : {counts.deaths, counts.leaves, counts.stops, counts.successions,
                           counts.answers, counts.reasons, counts.verdicts, counts.waits}) {
    EXPECT_GT(count, 50u) << "the worlds are empty";
  }
}

}  // namespace
}  // namespace hccl::control

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seeds") hccl::control::g_seeds = value;
    if (option == "--seed") hccl::control::g_seed = value;
  }
  return RUN_ALL_TESTS();
}
