// The shape of the tree while nodes join, die or leave, and while roots are passed over.
#include "hccl/control/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace hccl::control {
namespace {

constexpr std::uint32_t kNone = ~0U;

// Joins nodes one by one at node 0, and returns their depths.
std::vector<int> join(std::size_t number) {
  std::vector<Seats> seats(1);
  std::vector<int> depths(1);
  while (seats.size() < number) {
    const int newcomer = static_cast<int>(seats.size());
    std::size_t at = 0;
    int depth = 1;
    while (const auto next = seats[at].seat(newcomer)) {
      at = static_cast<std::size_t>(*next);
      ++depth;
    }
    EXPECT_LE(seats[at].children(), kFanOut);
    seats.emplace_back();
    depths.push_back(depth);
  }
  return depths;
}

TEST(Seats, FillTheTreeLevelByLevel) {
  std::size_t full = 1, level = 1;
  for (int depth = 1; depth <= 4; ++depth) {
    full += level *= kFanOut;
    EXPECT_EQ(std::ranges::max(join(full)), depth) << full << " nodes";
    EXPECT_EQ(std::ranges::max(join(full + 1)), depth + 1) << full + 1 << " nodes";
  }
}

TEST(Seats, ASeatThatIsFreeAgainIsTaken) {
  Seats seats;
  for (int child = 0; child < 8; ++child) EXPECT_EQ(seats.seat(child), std::nullopt);
  for (int child = 0; child < 8; ++child) seats.announced(child, child == 5 ? 3 : 7);
  EXPECT_EQ(seats.seat(8), 5);
  seats.announced(5, 1);
  EXPECT_EQ(seats.seat(9), 5) << "4 of 7, as newcomer 8 is on its way";
  seats.gone(2);
  seats.announced(2, 9);
  EXPECT_EQ(seats.seat(10), std::nullopt);
}

// A random tree in which node 0 is the root, and the numbers of the other nodes do not depend on
// their depths.
std::shared_ptr<const Roster> random_roster(std::mt19937_64& random, std::uint32_t size) {
  Roster roster;
  roster.hosts.push_back({"here", "", ""});
  std::vector<std::uint32_t> order(size);
  for (std::uint32_t i = 0; i < size; ++i) order[i] = i;
  std::shuffle(order.begin() + 1, order.end(), random);
  roster.nodes.resize(size);
  for (std::uint32_t i = 1; i < size; ++i) {
    roster.nodes[order[i]].parent = order[static_cast<std::uint32_t>(random() % i)];
  }
  return std::make_shared<const Roster>(std::move(roster));
}

// Returns whether every living node reaches the root through its parents.
bool is_tree(const std::vector<std::uint32_t>& parent, const Tree& tree) {
  for (std::uint32_t node = 0; node < parent.size(); ++node) {
    if (!tree.lives(node)) continue;
    std::uint32_t at = node;
    std::size_t steps = 0;
    while (at != tree.root().node) {
      if (parent[at] == kNone || !tree.lives(parent[at]) || ++steps > parent.size()) return false;
      at = parent[at];
    }
  }
  return true;
}

// Nodes go, roots are passed over, and any of the nodes that an orphan asks adopts the orphan.
TEST(Tree, StaysATreeWhoeverGoes) {
  std::mt19937_64 random(1);
  int successions = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto size = static_cast<std::uint32_t>(2 + random() % 40);
    const auto roster = random_roster(random, size);
    Tree tree(roster);
    std::vector<std::uint32_t> parent(size, kNone);
    for (std::uint32_t node = 1; node < size; ++node) parent[node] = roster->nodes[node].parent;
    std::set<std::uint32_t> living, passed;
    for (std::uint32_t node = 0; node < size; ++node) living.insert(node);
    while (living.size() > 1 + random() % 3) {
      if (random() % 8 == 0 && living.size() > passed.size() + 2) {
        tree.pass_over();
        passed.insert(tree.root().node);
      } else {
        const auto gone = *std::next(living.begin(), static_cast<int>(random() % living.size()));
        if (passed.count(gone) == 0 && living.size() < passed.size() + 2) break;
        living.erase(gone);
        passed.erase(gone);
        tree.gone({gone});
      }
      const Root before = tree.root();
      for (const std::uint32_t node : living) {
        if (!tree.succeeds(node)) continue;
        ++successions;
        ASSERT_EQ(tree.root().epoch, before.epoch + 1);
        const auto able = std::ranges::find_if(living, [&](auto n) { return !passed.count(n); });
        ASSERT_EQ(node, *able) << "the lowest that was not passed over";
      }
      ASSERT_EQ(tree.root().node == before.node,
                living.count(before.node) == 1 && passed.count(before.node) == 0);
      parent[tree.root().node] = kNone;
      for (const std::uint32_t node : living) {
        const bool orphan = parent[node] == kNone || living.count(parent[node]) == 0;
        if (node == tree.root().node || !orphan) continue;
        const auto asked = tree.asks(node);
        ASSERT_FALSE(asked.empty());
        ASSERT_EQ(std::set(asked.begin(), asked.end()).size(), asked.size());
        parent[node] = asked[random() % asked.size()];
        ASSERT_TRUE(living.count(parent[node]) == 1 && tree.adopts(parent[node], node));
      }
      ASSERT_TRUE(is_tree(parent, tree)) << "round " << round;
    }
  }
  EXPECT_GT(successions, 1000);
}

TEST(Tree, AnOrphanAsksTheNearestFirst) {
  Roster roster;
  for (const std::uint32_t parent : {0u, 0u, 1u, 2u, 0u}) {
    roster.nodes.push_back({.parent = parent, .ranks = {}});
  }
  Tree tree(std::make_shared<const Roster>(roster));
  EXPECT_EQ(tree.asks(3), (std::vector<std::uint32_t>{2, 1, 0}));
  tree.gone({0, 2});
  EXPECT_EQ(tree.asks(3), (std::vector<std::uint32_t>{1})) << "an ancestor, and the successor";
  EXPECT_EQ(tree.asks(4), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(tree.asks(1), (std::vector<std::uint32_t>{})) << "it is the successor itself";
  EXPECT_FALSE(tree.adopts(4, 3)) << "neither an ancestor nor the root";
}

// Nodes learn of roots in any order, and all obey the same one in the end.
TEST(Tree, AllObeyTheLatestRoot) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const auto roster = random_roster(random, 10);
    std::vector<Root> roots;
    for (std::uint32_t i = 0; i < 6; ++i) {
      roots.push_back({2 + static_cast<std::uint32_t>(random() % 3),
                       static_cast<std::uint32_t>(random() % 10)});
    }
    Tree one(roster), other(roster);
    for (const Root& each : roots) {
      const bool later = each.is_later_than(one.root());
      ASSERT_EQ(one.heard(each), later);
    }
    std::ranges::shuffle(roots, random);
    for (const Root& each : roots) static_cast<void>(other.heard(each));
    ASSERT_EQ(one.root(), other.root());
    ASSERT_FALSE(one.heard({1, 0})) << "never an earlier one again";
    ASSERT_FALSE(one.heard({9, 10})) << "nor a node that is not there";
  }
}

// A node that missed one root still knows which node succeeds the next root.
TEST(Tree, RootsFollowEachOtherInTheOrderOfTheirNumbers) {
  std::mt19937_64 random(4);
  Tree tree(random_roster(random, 4));
  EXPECT_TRUE(tree.heard({3, 2}));
  tree.pass_over();
  EXPECT_FALSE(tree.succeeds(1)) << "though it lives";
  EXPECT_TRUE(tree.succeeds(3));
  EXPECT_TRUE(tree.heard({4, 2})) << "two nodes have succeeded at once, and the lower one counts";
  tree.gone({2});
  EXPECT_TRUE(tree.succeeds(3)) << "it was not passed over";
  tree.pass_over();
  EXPECT_TRUE(tree.succeeds(0)) << "the lowest follows the highest";
  EXPECT_EQ(tree.root(), (Root{6, 0}));
}

TEST(Tree, ARootThatWasPassedOverIsAPlainNode) {
  std::mt19937_64 random(3);
  Tree tree(random_roster(random, 4));
  EXPECT_FALSE(tree.succeeds(0)) << "it rules";
  EXPECT_FALSE(tree.succeeds(1));
  tree.pass_over();
  EXPECT_FALSE(tree.succeeds(0));
  EXPECT_FALSE(tree.succeeds(2));
  EXPECT_TRUE(tree.succeeds(1));
  EXPECT_EQ(tree.root(), (Root{2, 1}));
  EXPECT_TRUE(tree.lives(0));
  EXPECT_FALSE(tree.adopts(0, 1)) << "the root has no parent";
  EXPECT_TRUE(tree.adopts(1, 0));
  EXPECT_EQ(tree.asks(0), (std::vector<std::uint32_t>{1}));
  tree.gone({1});
  EXPECT_TRUE(tree.succeeds(2)) << "not the one that was passed over";
}

}  // namespace
}  // namespace hccl::control
