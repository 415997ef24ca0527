// A rank leaves or dies while another rank of its process stays, in small control trees; the root
// dies before or after it learns of that. Ranks 2n and 2n + 1 are on node n.
#include <gtest/gtest.h>

#include "tests/control/oracle.h"

namespace hccl::control {
namespace {

using std::chrono::microseconds;

class Pairs : public Oracle {
 public:
  explicit Pairs(std::uint32_t nodes) : Oracle(1, false, counted()) {
    delay_ = milliseconds(1);
    repair_ = seconds(3);
    Roster roster;
    roster.hosts.push_back({"host", "", "10.0.0.1"});
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const std::uint32_t parent = node == 0 ? 0 : (node - 1) / 2;
      roster.nodes.push_back({0, parent, 100 + node, 0, 0, {2 * node, 2 * node + 1}});
      for (int rank = 0; rank < 2; ++rank) roster.node_of.push_back(node);
      heard_[node] = {};
    }
    groups_ = {RankSet::range(0, 2 * nodes)};
    make(std::make_shared<const Roster>(std::move(roster)));
  }

  void ends_alone(std::uint32_t rank, bool leaves, nanoseconds when) {
    schedule(when, [=, this] { end_alone(rank, leaves); });
  }
  void dies(std::uint32_t node, nanoseconds when) {
    schedule(when, [=, this] { fault("deaths"), die(node); });
  }
  void go_on_without_the_gone() { lenient_ = {0}; }
  void gathers(const RankSet& ranks, nanoseconds when) {
    for (const std::uint32_t rank : ranks.ranks()) {
      schedule(when - now_, [=, this] { gather(0, rank, 1); });
    }
  }
  void waits(const RankSet& ranks, std::uint32_t awaited, nanoseconds when) {
    awaited_ = awaited;
    for (const std::uint32_t rank : ranks.ranks()) {
      schedule(when - now_, [=, this] { wait(rank, kWaits, 1, seconds(20)); });
    }
  }
  void until(nanoseconds when) { run_until(when); }
  void ends() {
    run_until(seconds(30));
    check_end();
  }

  bool knows_left(std::uint32_t node, std::uint32_t rank) const {
    return heard_.at(node).left_ranks.count(rank) != 0;
  }
  bool knows_dead(std::uint32_t node, std::uint32_t rank) const {
    return heard_.at(node).deaths.count(rank) != 0;
  }
  bool knows_gone(std::uint32_t node, std::uint32_t other) const {
    return heard_.at(node).gone.count(other) != 0;
  }
  std::string verdict(std::uint32_t node) const {
    const auto& all = heard_.at(node).failures;
    return all.empty() ? "" : all.begin()->second.second.message();
  }
  std::uint64_t whole() const { return counts_.events["whole gatherings"]; }
  /// The culprits that failed gatherings named.
  const RankSet& culprits() const { return culprits_; }

 private:
  static Counts& counted() {
    static Counts counts;
    counts = {};
    return counts;
  }
  void went_on(std::uint32_t, std::uint32_t, std::uint64_t) override {}
  using Oracle::hear;
  void hear(std::uint32_t node, const Gatherings::Answer& answer) override {
    Oracle::hear(node, answer);
    if (!answer.why.ok()) culprits_ |= {static_cast<std::uint32_t>(answer.why.culprit())};
  }

  RankSet culprits_;
};

TEST(LoneRanks, TheOthersHearOfItAtOnceAndOfNoNode) {
  for (const bool leaves : {true, false}) {
    Pairs world(7);
    world.ends_alone(9, leaves, milliseconds(3100));
    world.until(milliseconds(3140));
    for (std::uint32_t node = 0; node < 7; ++node) {
      EXPECT_EQ(world.knows_left(node, 9), leaves);
      EXPECT_EQ(world.knows_dead(node, 9), !leaves);
      EXPECT_FALSE(world.knows_gone(node, 4));
    }
    world.ends();
  }
}

// The message is on its way to the root, at the root, or on its way to the other nodes.
TEST(LoneRanks, ANewRootKnowsOfItWheneverTheOldOneDies) {
  for (const bool leaves : {true, false}) {
    for (int after = -2000; after <= 8000; after += 200) {
      Pairs world(7);
      world.ends_alone(9, leaves, milliseconds(3100));
      world.dies(0, milliseconds(3100) + microseconds(after));
      world.until(seconds(6));
      for (std::uint32_t node = 1; node < 7; ++node) {
        EXPECT_EQ(world.knows_left(node, 9), leaves) << "the root died after " << after << " us";
        EXPECT_EQ(world.knows_dead(node, 9), !leaves) << "the root died after " << after << " us";
      }
      world.ends();
    }
  }
}

// All ancestors of the node die together, so that the node is the only one that can report its
// rank.
TEST(LoneRanks, ANewRootHearsOfItFromTheProcessItself) {
  for (const bool leaves : {true, false}) {
    Pairs world(7);
    world.ends_alone(9, leaves, milliseconds(3100));
    for (const std::uint32_t node : {0U, 1U}) world.dies(node, milliseconds(3100));
    world.ends();
    for (std::uint32_t node = 2; node < 7; ++node) {
      EXPECT_EQ(world.knows_left(node, 9), leaves);
      EXPECT_EQ(world.knows_dead(node, 9), !leaves);
    }
  }
}

TEST(LoneRanks, AGatheringThatAwaitsItNamesIt) {
  for (const bool leaves : {true, false}) {
    for (const int when : {2900, 3100}) {  // before the other ranks come, or after that
      Pairs world(4);
      world.gathers(RankSet::range(0, 8) - RankSet{3}, milliseconds(3000));
      world.ends_alone(3, leaves, milliseconds(when));
      world.until(milliseconds(3800));
      EXPECT_EQ(world.culprits(), RankSet{3});
      world.ends();
    }
  }
}

TEST(LoneRanks, SurvivorsGoOnWithoutIt) {
  for (const bool leaves : {true, false}) {
    for (const int when : {2900, 3100}) {
      Pairs world(4);
      world.go_on_without_the_gone();
      world.gathers(RankSet::range(0, 8) - RankSet{3}, milliseconds(3000));
      world.ends_alone(3, leaves, milliseconds(when));
      world.until(milliseconds(3300));
      EXPECT_EQ(world.whole(), 7U);
      world.ends();
    }
  }
}

TEST(LoneRanks, NoRankWaitsForOneThatLeft) {
  for (const bool root_dies : {false, true}) {
    Pairs world(4);
    world.ends_alone(3, true, milliseconds(3100));
    if (root_dies) world.dies(0, milliseconds(3101));
    world.waits({2, 5, 6}, 3, milliseconds(3000));
    world.ends();
    for (const std::uint32_t node : {1U, 2U, 3U}) {
      EXPECT_EQ(world.verdict(node).find("rank 3 "), 0U) << world.verdict(node);
    }
  }
}

TEST(LoneRanks, ARankThatLeftIsNotDeadOnceItsProcessDies) {
  Pairs world(4);
  world.ends_alone(7, true, milliseconds(3000));
  world.dies(3, milliseconds(3100));
  world.ends();
  for (std::uint32_t node = 0; node < 3; ++node) {
    EXPECT_TRUE(world.knows_left(node, 7));
    EXPECT_FALSE(world.knows_dead(node, 7)) << "it had left before";
    EXPECT_TRUE(world.knows_dead(node, 6));
  }
}

}  // namespace
}  // namespace hccl::control
