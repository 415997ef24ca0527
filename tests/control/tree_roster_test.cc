// Rosters of random trees, merged from parts; and rosters that are read from wrong bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "hccl/control/roster.h"

namespace hccl::control {
namespace {

std::string bytes_of(const Roster& roster) {
  ByteWriter out;
  put(out, roster);
  return out.take();
}
std::optional<Roster> read_roster(std::string_view bytes) {
  ByteReader in(bytes);
  auto roster = get_roster(in);
  return in.finished() ? std::move(roster) : std::nullopt;
}

// The entry of one process; pids are unique. Each host has three processes.
Roster process(std::uint32_t pid, RankSet ranks, std::uint32_t host) {
  Roster own;
  const std::string name = "host" + std::to_string(host);
  own.hosts.push_back({name, std::string(1, static_cast<char>(1 << pid % 3)), "10.0.0.1"});
  own.nodes.push_back({0, 0, pid, static_cast<std::uint16_t>(pid + 1), 7, std::move(ranks)});
  return own;
}

// The world as the test makes it: process p has pid p, and its parent has a lower pid.
struct TreeWorld {
  explicit TreeWorld(std::mt19937_64& random) : parent(1 + random() % 30), ranks(parent.size()) {
    for (std::uint32_t p = 1; p < parent.size(); ++p) {
      parent[p] = static_cast<std::uint32_t>(random() % p);
    }
    std::vector<std::uint32_t> all(random() % 40);
    std::iota(all.begin(), all.end(), 0);
    size = static_cast<std::uint32_t>(all.size());
    for (const std::uint32_t rank : all) ranks[random() % ranks.size()] |= RankSet{rank};
  }
  Roster own(std::uint32_t p) const { return process(p, ranks[p], p / 3); }
  std::vector<std::uint32_t> parent;
  std::vector<RankSet> ranks;
  std::uint32_t size = 0;
};

// Every process sends its draft to its parent several times, in random order, until the root has
// the drafts of all. Drafts are sent as bytes.
RosterDraft join(const TreeWorld& world, std::mt19937_64& random) {
  std::vector<RosterDraft> drafts;
  for (std::uint32_t p = 0; p < world.parent.size(); ++p) drafts.emplace_back(world.own(p));
  const auto announce = [&](std::size_t p) {
    if (p == 0) return;
    const auto sub = read_roster(bytes_of(drafts[p].roster()));
    ASSERT_TRUE(sub);
    ASSERT_TRUE(drafts[world.parent[p]].add(*sub).ok());
  };
  for (std::size_t times = random() % 60; times > 0; --times) announce(random() % drafts.size());
  for (std::size_t p = drafts.size(); p-- > 0;) announce(p);
  return drafts.front();
}

TEST(Roster, ComesTogetherFromTheTree) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const TreeWorld world(random);
    const auto finished = join(world, random).finished(world.size);
    ASSERT_TRUE(finished.ok()) << finished.status().message();
    const auto roster = read_roster(bytes_of(finished.value()));
    ASSERT_TRUE(roster);
    ASSERT_EQ(roster->nodes.size(), world.parent.size());
    ASSERT_EQ(roster->hosts.size(), (world.parent.size() + 2) / 3);
    ASSERT_EQ(roster->node_of.size(), world.size);
    ASSERT_EQ(roster->nodes[0].pid, 0u);
    std::uint32_t lowest = 0;
    bool none = false;  // whether the nodes without ranks have begun
    for (std::uint32_t number = 0; number < roster->nodes.size(); ++number) {
      const auto& node = roster->nodes[number];
      ASSERT_EQ(node.ranks, world.ranks[node.pid]);
      ASSERT_EQ(roster->nodes[node.parent].pid, world.parent[node.pid]);
      ASSERT_EQ(roster->hosts[node.host].machine, "host" + std::to_string(node.pid / 3));
      for (const std::uint32_t rank : node.ranks.ranks()) ASSERT_EQ(roster->node_of[rank], number);
      if (number == 0) continue;
      ASSERT_FALSE(none && !node.ranks.empty());
      none = node.ranks.empty();
      if (none) continue;
      ASSERT_GE(node.ranks.lowest(), lowest);
      lowest = node.ranks.lowest();
    }
    const auto last = static_cast<std::uint32_t>(roster->nodes.size() - 1);
    const auto above = roster->ancestors(last);
    ASSERT_TRUE(last == 0 ? above.empty() : above.back() == 0);
    const auto children = roster->children();
    ASSERT_TRUE(last == 0 || std::ranges::count(children[above[0]], last) == 1);
  }
}

TEST(Roster, HasTheCoresOfAllProcessesOfAHost) {
  RosterDraft draft(process(0, {0}, 5));
  for (const std::uint32_t pid : {1u, 2u, 1u}) ASSERT_TRUE(draft.add(process(pid, {pid}, 5)).ok());
  ASSERT_EQ(draft.roster().hosts.size(), 1u);
  EXPECT_EQ(draft.roster().hosts[0].cores, "\7");
  EXPECT_EQ(draft.roster().nodes.size(), 3u) << "process 1 came twice";
}

TEST(Roster, ADraftHoldsBothProcessesThatClaimARank) {
  RosterDraft draft(process(10, {0}, 0));
  ASSERT_TRUE(draft.add(process(11, {1, 2}, 0)).ok());
  ASSERT_TRUE(draft.add(process(12, {2}, 1)).ok());
  const std::string bytes = bytes_of(draft.roster());
  ByteReader in(bytes);
  const auto back = get_roster(in);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->nodes.size(), 3u);
  EXPECT_TRUE(back->node_of.empty());
  const auto refused = draft.finished(3, {2});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("absent: 2"), std::string::npos);
}

TEST(Roster, IsNotFinishedWithoutAllRanks) {
  RosterDraft draft(process(10, {0}, 0));
  ASSERT_TRUE(draft.add(process(11, {2, 3}, 0)).ok());
  const auto early = draft.finished(5);
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.status().message().find("2 of 5 ranks did not join; absent: 1, 4"),
            std::string::npos)
      << early.status().message();
  EXPECT_FALSE(draft.finished(3).ok()) << "rank 3 is not of this world";
}

// A child lists a process twice, the second time below itself. This must not make a cycle.
TEST(Roster, AProcessListedTwiceStaysInTheTree) {
  Roster sub = process(20, {1}, 0);
  sub.nodes.push_back({0, 0, 21, 1, 0, {}});
  sub.nodes.push_back({0, 1, 22, 1, 0, {}});
  sub.nodes.push_back({0, 2, 21, 1, 0, {}});
  RosterDraft draft(process(10, {0}, 0));
  ASSERT_TRUE(draft.add(sub).ok());
  EXPECT_TRUE(read_roster(bytes_of(draft.roster())));
  EXPECT_EQ(draft.roster().nodes.size(), 4u);
}

TEST(Roster, WrongBytesAreRefused) {
  Roster good = process(0, {0}, 0);
  good.nodes.push_back({0, 0, 1, 1, 0, {1}});
  good.nodes.push_back({0, 1, 2, 1, 0, {2}});
  const std::string bytes = bytes_of(good);
  ASSERT_TRUE(read_roster(bytes));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(read_roster(std::string_view(bytes).substr(0, cut))) << cut;
  }
  EXPECT_FALSE(read_roster(bytes + "x"));
  const auto wrong = [&](auto change) {
    Roster roster = good;
    change(roster);
    return !read_roster(bytes_of(roster));
  };
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes.clear(); })) << "no root";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[0].parent = 1; })) << "the root has a parent";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[1].parent = 2; })) << "a circle";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[1].parent = 1; })) << "a second root";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[1].parent = 9; })) << "a parent that is not there";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[1].host = 1; })) << "a host that is not there";
  EXPECT_TRUE(wrong([](Roster& r) { r.nodes[1].ranks = {kRanksCap}; })) << "too high a rank";
  EXPECT_TRUE(wrong([](Roster& r) { r.hosts[0].machine.resize(kMachineCap + 1); }));
  EXPECT_TRUE(wrong([](Roster& r) { r.hosts[0].address.resize(kAddressCap + 1); }));
}

TEST(Roster, RandomBytesMakeATreeOrNothing) {
  std::mt19937_64 random(4);
  int read_ones = 0;
  for (int round = 0; round < 300; ++round) {
    const TreeWorld world(random);
    const std::string bytes = bytes_of(join(world, random).roster());
    for (int changes = 0; changes < 100; ++changes) {
      std::string wrong = bytes;
      for (auto times = 1 + random() % 3; times > 0; --times) {
        wrong[random() % wrong.size()] = static_cast<char>(random() % 4);
      }
      const auto roster = read_roster(wrong);
      if (!roster) continue;
      ++read_ones;
      ASSERT_EQ(bytes_of(*roster), wrong);
      for (std::uint32_t node = 0; node < roster->nodes.size(); ++node) {
        ASSERT_LT(roster->nodes[node].host, roster->hosts.size());
        const auto above = roster->ancestors(node);
        ASSERT_LE(above.size(), roster->nodes.size());
      }
    }
  }
  EXPECT_GT(read_ones, 1000);
}

TEST(Roster, OfTenThousandRanksIsSmall) {
  RosterDraft draft(process(0, {0}, 0));
  for (std::uint32_t rank = 1; rank < 10'000; ++rank) {
    ASSERT_TRUE(draft.add(process(rank, {rank}, rank / 125)).ok());
  }
  const auto roster = draft.finished(10'000);
  ASSERT_TRUE(roster.ok());
  EXPECT_LT(bytes_of(roster.value()).size(), 36 * 10'000u + 80 * 64u);
}

}  // namespace
}  // namespace hccl::control
