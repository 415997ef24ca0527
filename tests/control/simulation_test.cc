// Whole lives of control trees: nodes die, leave, stop and run again, and their ranks gather,
// report and wait. A seed decides everything, so a seed that fails can be replayed:
//   control_simulation_test --seeds 100000    more worlds
//   control_simulation_test --seed 17         one world, with every event
//   control_simulation_test --nodes 1024      as many nodes in each world
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/control/oracle.h"
#include "tests/support/sanitizers.h"

namespace hccl::control {
namespace {

std::uint64_t g_seeds = testing::kSanitized ? 40 : 500;
std::optional<std::uint64_t> g_seed;
std::uint32_t g_nodes = 0;  // of each world; 0: the seed chooses

constexpr seconds kActions{6};  // nothing happens after this time
constexpr std::uint32_t kGroups = 3;

/// A seed chooses one of these kinds of world. If few things happen, the time limits are tight.
enum Worlds {
  kCalm,
  kOneDeath,
  kDeaths,
  kDeathsAndLeaves,
  kRanks,  ///< some ranks leave or die while others of their processes stay
  kShortStops,
  kSuspended,
  kStopAndDeath,
  kMixed,
  kCut
};

class Simulation : public Oracle {
 public:
  Simulation(std::uint64_t seed, bool trace, Counts& counts) : Oracle(seed, trace, counts) {
    kind_ = static_cast<int>(seed % (kCut + 1));
    const std::uint32_t nodes = 1 + random_.below(random_.percent(15) ? 64 : 12);
    make_roster(g_nodes != 0 ? g_nodes : nodes);
    for (std::uint32_t node = 0; node < lives_.size(); ++node) heard_[node] = {};
    repair_ = 2 * reach() + allowed(true);
    may_miss_leaves_ = kind_ == kMixed;
    all_stop_ = kind_ == kSuspended;
    hears_of_silence_ = kind_ >= kStopAndDeath;
  }

  void run() {
    plan_faults();
    plan_ranks();
    run_until(kind_ < kShortStops ? seconds(14) : seconds(34));
    counts_.events["successions"] += successions_;
    if (kind_ == kCalm || kind_ == kShortStops || kind_ == kSuspended) {
      require(frames_[Kind::kAdopt] + frames_[Kind::kOffer] == 0, "a place changes without need");
    }
    check_end();
  }

 private:
  /// The time that the tree may need after a fault. Acknowledgements come within 50 ms, orphans ask
  /// again after 100 ms, and a stopped node is abandoned 300 ms after the next frame to it, which
  /// may be a beat later; a stopped root takes 1 s more. A process that leaves stays for 300 ms; if
  /// the next root leaves, too, orphans first dial both in vain, for 100 ms each.
  nanoseconds allowed(bool root_stops) const {
    if (kind_ == kCalm || kind_ == kShortStops) return milliseconds(80);
    if (kind_ == kSuspended) return milliseconds(1500);
    if (kind_ == kDeathsAndLeaves || kind_ == kRanks) return milliseconds(600);
    if (kind_ < kShortStops) return milliseconds(400);
    return kind_ == kStopAndDeath && !root_stops ? milliseconds(1500) : milliseconds(2500);
  }
  void make_roster(std::uint32_t size) {
    Roster roster;
    roster.hosts.push_back({"here", "", "10.0.0.1"});
    std::uint32_t rank = 0;
    const std::uint32_t fan_out = 1 + random_.below(8);
    for (std::uint32_t node = 0; node < size; ++node) {
      const bool several = !random_.percent(kind_ == kRanks ? 40 : 70);
      const std::uint32_t ranks = several ? random_.below(4) : 1;
      roster.nodes.push_back({0, node == 0 ? 0 : (node - 1) / fan_out, 100 + node, 0, 0,
                              RankSet::range(rank, rank + ranks)});
      for (std::uint32_t i = 0; i < ranks; ++i) roster.node_of.push_back(node);
      rank += ranks;
    }
    make(std::make_shared<const Roster>(std::move(roster)));
  }

  // ---- faults ----

  /// A random time; in half of the cases one at which many things happen.
  nanoseconds sometime() {
    return random_.percent(50) ? seconds(3) + random_.up_to(milliseconds(50))
                               : random_.up_to(kActions);
  }
  std::uint32_t some_node() {
    return random_.percent(40) ? 0 : random_.below(roster_->nodes.size());
  }
  void plan_faults() {
    const auto size = static_cast<std::uint32_t>(roster_->nodes.size());
    if (kind_ == kOneDeath) later_dies(some_node(), sometime());
    if (kind_ == kStopAndDeath && size > 2) {
      const std::uint32_t stopped = some_node(), dies = random_.below(size);
      const nanoseconds length = random_.percent(50) ? nanoseconds(seconds(4)) : kNever;
      later_stops(stopped, seconds(2), length);
      repair_ = 2 * reach() + allowed(stopped == 0 || dies == 0);
      if (dies != stopped) later_dies(dies, seconds(2) + random_.up_to(seconds(4)));
    }
    // All processes of the job are suspended, or get too little processor time and run in turns.
    const bool starved = random_.percent(50);
    for (std::uint32_t node = 0; kind_ == kSuspended && node < size; ++node) {
      if (!starved) later_stops(node, seconds(2) + random_.up_to(milliseconds(5)), seconds(8));
      for (int i = 0; starved && i < 20; ++i) {
        later_stops(node, milliseconds(300 * i) + random_.up_to(milliseconds(100)),
                    milliseconds(100) + random_.up_to(milliseconds(80)));
      }
    }
    if (kind_ == kCut && size > 1) schedule(sometime(), [this] { sever(some_nodes()); });
    const bool lone = kind_ == kDeathsAndLeaves || kind_ == kRanks || kind_ >= kMixed;
    if (lone) plan_lone_ranks();
    for (std::uint32_t node = 0; node < size; ++node) {
      const unsigned chance = node == 0 ? 50 : size > 12 ? 8 : 25;
      if (!random_.percent(chance)) continue;
      const nanoseconds when = sometime();
      const std::uint32_t what = random_.below(4);
      if (kind_ == kDeaths || (kind_ == kDeathsAndLeaves && what < 2)) later_dies(node, when);
      if (kind_ == kDeathsAndLeaves && what >= 2) later_leaves(node, when);
      if (kind_ == kRanks && what == 0) later_leaves(node, when);
      if (kind_ == kCut && what == 0) later_dies(node, when);
      if (kind_ == kShortStops) later_stops(node, when, milliseconds(100));
      if (kind_ != kMixed) continue;
      const nanoseconds lengths[] = {milliseconds(100), milliseconds(600), seconds(4), seconds(15),
                                     kNever};
      if (what == 0) later_dies(node, when);
      if (what == 1) later_leaves(node, when);
      if (what >= 2) later_stops(node, when, lengths[random_.below(5)]);
    }
  }
  void plan_lone_ranks() {
    for (const auto& node : roster_->nodes) {
      const std::vector<std::uint32_t> ranks = node.ranks.ranks();
      if (ranks.size() < 2 || !random_.percent(60)) continue;
      const std::uint32_t rank = ranks[random_.below(ranks.size())];
      const nanoseconds when = sometime();
      const bool leaves = random_.percent(50);
      schedule(when, [=, this] { end_alone(rank, leaves); });
      // The root may die before or just after it gets the message, or after it has informed other
      // nodes.
      if (!random_.percent(30)) continue;
      schedule(when + random_.up_to(2 * reach()), [this] { root_dies(); });
    }
  }
  void root_dies() {
    for (std::uint32_t node = 0; node < lives_.size(); ++node) {
      if (!runs(node) || relay(node).state() != Relay::State::kRoot) continue;
      fault("deaths");
      return die(node);
    }
  }
  /// Returns at most half of the nodes.
  std::set<std::uint32_t> some_nodes() {
    const auto size = static_cast<std::uint32_t>(roster_->nodes.size());
    const std::uint32_t number = 1 + random_.below(size / 2), first = random_.below(size);
    const bool together = random_.percent(50);
    std::set<std::uint32_t> some;
    while (some.size() < number) {
      const auto next = static_cast<std::uint32_t>(some.size());
      some.insert(together ? (first + next) % size : random_.below(size));
    }
    return some;
  }
  void later_dies(std::uint32_t node, nanoseconds when) {
    schedule(when, [this, node] {
      if (runs(node)) fault("deaths");
      die(node);
    });
  }
  void later_leaves(std::uint32_t node, nanoseconds when) {
    schedule(when, [this, node] {
      if (runs(node)) fault("leaves");
      leave(node);
    });
  }
  void later_stops(std::uint32_t node, nanoseconds when, nanoseconds length) {
    schedule(when, [this, node, length] {
      if (!runs(node)) return;
      fault("stops");
      stop(node, length);
      if (length != kNever) schedule(length, [this] { fault("ends of stops"); });
    });
  }

  // ---- ranks ----

  void plan_ranks() {
    const auto ranks = static_cast<std::uint32_t>(roster_->node_of.size());
    if (ranks == 0) return;
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      std::vector<std::uint32_t> members;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if (group == 0 || random_.percent(40)) members.push_back(rank);
      }
      groups_.emplace_back(std::move(members));
      refuse_at_.push_back(1 + random_.below(12));
      refuser_.push_back(random_.percent(25) ? random_.below(ranks) : ranks);
      again_.push_back(random_.percent(60));
      if (random_.percent(50)) lenient_.insert(group);
      if (random_.percent(50)) shrinks_.insert(group);
      for (const std::uint32_t rank : groups_[group].ranks()) went_on(group, rank, 1);
    }
    for (std::uint32_t i = random_.below(24); i > 0; --i) {
      const std::uint32_t rank = random_.below(ranks), scope = random_.below(12);
      const Code code = random_.percent(60) ? Code::kRemote : Code::kMemory;
      const std::uint32_t culprit = random_.below(ranks);
      schedule(sometime(), [=, this] { report(rank, scope, code, culprit); });
    }
    awaited_ = random_.below(ranks);
    const bool differ = random_.percent(30) && ranks > 2, same = random_.percent(30);
    for (std::uint32_t rank = 0; rank < ranks && same; ++rank) {
      refuse(rank, kEverything, false);  // all ranks make the same mistake
      refuse(rank, kWaits, false);
    }
    if (random_.percent(25)) {
      schedule(sometime(), [this] { refuse(awaited_, kWaits, true); });
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (rank == awaited_) continue;
      const std::uint8_t call = differ && rank + 1 == ranks ? 2 : 1;
      const Uuid scope = differ ? kDiffers : kWaits;
      schedule(random_.up_to(kWaitsEach),
               [=, this] { wait(rank, scope, call, kActions + seconds(5)); });
    }
  }
  // In some groups one rank refuses a call; it may or may not call again.
  void went_on(std::uint32_t group, std::uint32_t rank, std::uint64_t number) override {
    if (now_ > kActions) return;
    // Gatherings that are open while the network is cut are the hardest case.
    const nanoseconds when = random_.percent(kind_ == kCut ? 20 : 4)
                                 ? seconds(3)
                                 : random_.up_to(milliseconds(random_.percent(50) ? 5 : 900));
    if (rank != refuser_[group] || number != refuse_at_[group]) {
      return schedule(when, [=, this] { gather(group, rank, number); });
    }
    schedule(when, [=, this] { refuse(rank, kEverything, true); });
    if (!again_[group]) return;
    schedule(when + milliseconds(100), [=, this] { gather(group, rank, number); });
  }

  // By group:
  std::vector<std::uint64_t> refuse_at_;
  std::vector<std::uint32_t> refuser_;
  std::vector<bool> again_;
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
  for (const auto& [event, count] : counts.events) {
    std::cout << count << " " << event << "\n";
    if (g_seed || g_seeds < 500) continue;
    EXPECT_GT(count, 30u) << "too few " << event;
  }
  for (const auto& [which, time] : counts.longest) {
    std::cout << "world of kind " << which.first << ": " << which.second << " took "
              << time.count() / 1000000 << " ms and two ways at most\n";
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
    if (option == "--nodes") hccl::control::g_nodes = static_cast<std::uint32_t>(value);
    if (option == "--seed") hccl::control::g_seed = value;
  }
  return RUN_ALL_TESTS();
}
