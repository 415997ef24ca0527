// Several processes claim the same rank, or belong to several attempts of one agent. The tests
// check which process alone is refused, and when the world ends.
#include <gtest/gtest.h>

#include "tests/control/seek_world.h"

namespace hccl::control {
namespace {

// The old process is a child of the root, or of another process. It has a child, which is then
// seated elsewhere.
TEST(SeekClaims, AProcessThatIsLeftOverIsRefusedAlone) {
  for (const std::uint32_t others : {1u, 9u}) {
    for (const bool first : {false, true}) {  // the old process comes first or second
      Seeking world;
      world.add_many(others, others + 10);
      for (auto& each : world.processes_) each.own.nodes[0].started = 5000;
      const auto add = [&](bool old, nanoseconds when) {
        // If the right process comes last, it completes the world while the old process leaves.
        const RankSet ranks = old || !first ? RankSet{others} : RankSet{others, others + 9};
        return world.add_at_root(ranks, others + 10, when, old ? 4000 : 5200);
      };
      const std::uint32_t one = add(first, milliseconds(1000));
      std::uint32_t next = others + 1;
      for (; next < others + 9; ++next) {
        world.add_at_root({next}, others + 10, milliseconds(1100 + next), 5100);
      }
      const std::uint32_t two = add(!first, milliseconds(1400));
      if (!first) world.add({next}, others + 10, milliseconds(1600));
      world.run_until(milliseconds(2900));
      const std::uint32_t left = first ? one : two, right = first ? two : one;
      for (std::uint32_t number = 0; number < world.processes_.size(); ++number) {
        EXPECT_EQ(world.is_in(number), number != left) << number << ": " << world.hears(number);
      }
      EXPECT_EQ(world.hears(left).find("EI0016: two processes claim rank "), 0u);
      EXPECT_NE(world.hears(left).find("(started 40 s after the boot)"), std::string::npos);
      EXPECT_NE(world.hears(left).find("HCCL_JOB_ID"), std::string::npos);
      ASSERT_TRUE(world.is_in(right));
      EXPECT_EQ(world.of(right).roster()->nodes.size(), others + (first ? 9 : 10));
    }
  }
}

TEST(SeekClaims, AProcessOlderThanTheRootOnlyIsNotLeftOver) {
  for (const std::uint64_t other : {3900u, 4950u}) {
    Seeking world;
    int remembered = 0;
    world.add_many(1, 4);
    world.processes_[0].own.nodes[0].started = 5000;
    world.processes_[0].claimants.remember = [&] {
      ++remembered;
      EXPECT_EQ(world.of(1).state(), Seek::State::kSeated);
    };
    world.add_at_root({1}, 4, milliseconds(500), other);  // a little or much older than the third
    world.add_at_root({2}, 4, milliseconds(600), 5050);
    world.add_at_root({2}, 4, milliseconds(700), 4000);
    world.run_until(milliseconds(900));
    EXPECT_EQ(world.of(3).state(), Seek::State::kOver);
    EXPECT_EQ(world.of(2).state(), other == 3900 ? Seek::State::kOver : Seek::State::kSeated);
    EXPECT_EQ(remembered, other == 3900 ? 1 : 0);
  }
}

TEST(SeekClaims, OnlyTheLastAttemptOfAnAgentMayJoin) {
  Seeking world;
  world.add_many(1, 4);
  world.add_at_root({1}, 4, milliseconds(100), 0, {7, 0});
  world.add_at_root({2}, 4, milliseconds(100), 0, {8, 0});
  world.add_at_root({3}, 4, milliseconds(500), 0, {7, 1});
  world.add_at_root({1}, 4, milliseconds(600), 0, {7, 0});
  world.run_until(milliseconds(900));
  const std::string words =
      "left over from an earlier attempt of its agent: "
      "TORCHELASTIC_RESTART_COUNT is higher for rank 3 (10.0.0.0 pid 503, "
      "restart 1)";
  EXPECT_EQ(world.hears(1), "EI0016: rank 1 (10.0.0.0 pid 501, restart 0) is " + words);
  EXPECT_EQ(world.hears(4), "EI0016: rank 1 (10.0.0.0 pid 504, restart 0) is " + words);
  world.add_at_root({1}, 4, milliseconds(1000), 0, {7, 1});
  world.run_until(milliseconds(1500));
  for (const std::uint32_t number : {0u, 2u, 3u, 5u}) EXPECT_TRUE(world.is_in(number)) << number;
}

TEST(SeekClaims, ARootOfAnEarlierAttemptEndsTheWorld) {
  Seeking world;
  world.add_many(2, 4);
  world.processes_[0].own.nodes[0].attempt = {7, 0};
  world.add_at_root({3}, 4, milliseconds(500), 0, {7, 1});
  world.run_until(milliseconds(900));
  for (const std::uint32_t number : {0u, 1u, 2u}) {
    EXPECT_EQ(world.hears(number).find("EI0016: rank 0 (10.0.0.0 pid 500, restart 0) is left"), 0u);
  }
}

TEST(SeekClaims, AProcessAsYoungAsTheRootIsNotLeftOver) {
  Seeking world;
  world.add_many(1, 4);
  world.processes_[0].own.nodes[0].started = 5000;
  world.add_at_root({2}, 4, milliseconds(500), 5100);
  world.add_at_root({2}, 4, milliseconds(600), 5300);
  world.run_until(milliseconds(900));
  EXPECT_EQ(world.of(0).state(), Seek::State::kOver);
  EXPECT_EQ(world.hears(1), world.hears(0));
}

// A new process may connect to a process that alone is refused.
TEST(SeekClaims, AProcessThatIsRefusedAloneRefusesNobody) {
  Seeking world;
  world.add_many(1, 4);
  world.add_at_root({1}, 4, milliseconds(100), 0, {7, 0});
  world.add_at_root({2}, 4, milliseconds(200), 0, {7, 1});
  world.run_until(milliseconds(500));
  Seek refused = world.of(1);
  ASSERT_EQ(refused.state(), Seek::State::kOver);
  ByteWriter ask;
  ask.put(std::uint8_t{64}).put(kJoinVersion).put(std::uint32_t{4}).put_text("same");
  put(ask, world.processes_[2].own);
  const auto step = refused.frame(7, ask.bytes(), Time(milliseconds(501)));
  ASSERT_EQ(step.outs.size(), 1u);
  EXPECT_TRUE(step.outs[0].close && step.outs[0].frame.empty());
}

// A process that has not joined claims rank 1: it replaces the process that joined, or both jobs
// end.
TEST(SeekClaims, AProcessThatHasNotComeMayClaimARank) {
  for (const std::uint64_t started : {3000u, 5200u, 6000u}) {
    Seeking world;
    int asked = 0, remembered = 0;
    world.add_many(1, 3);
    world.processes_[0].own.nodes[0].started = started == 3000 ? 5000 : 5500;
    const std::string machine = world.processes_[0].own.hosts[0].machine;
    world.processes_[0].claimants.remember = [&] { ++remembered; };
    world.processes_[0].claimants.find = [&](const std::vector<Claim>& came,
                                             const std::string& where) -> std::vector<Claim> {
      EXPECT_EQ(where, machine);
      EXPECT_EQ(came.size(), 3u);
      EXPECT_EQ(came[1].rank, 1u);
      if (++asked > 1) return {};
      return {{1, 900, machine, "this host", started, {}}};
    };
    world.add_at_root({1}, 3, milliseconds(100), 5100);
    world.add_at_root({2}, 3, milliseconds(200), 5600);
    world.run_until(milliseconds(400));
    if (started == 3000) {  // the process that has not joined is left over
      for (const std::uint32_t number : {0u, 1u, 2u}) EXPECT_TRUE(world.is_in(number));
    } else if (started == 5200) {  // the start times are too close
      EXPECT_NE(world.hears(2).find("this host pid 900 (started 52 s"), std::string::npos);
      EXPECT_EQ(world.hears(1), world.hears(0));
      EXPECT_EQ(remembered, 1);
    } else {  // the process that joined is left over
      EXPECT_EQ(world.of(1).state(), Seek::State::kOver);
      EXPECT_EQ(world.of(2).state(), Seek::State::kSeated);
      world.add_at_root({1}, 3, milliseconds(500), 6000);
      world.run_until(milliseconds(900));
      for (const std::uint32_t number : {0u, 2u, 3u}) EXPECT_TRUE(world.is_in(number));
      EXPECT_EQ(asked, 2);
    }
  }
}

// The process that has not joined belongs to the same attempt as rank 1, or to an earlier attempt.
TEST(SeekClaims, AProcessOfAnEarlierAttemptThatHasNotComeIsNotHeeded) {
  for (const std::uint32_t number : {1u, 2u}) {
    Seeking world;
    world.add_many(1, 2);
    const std::string machine = world.processes_[0].own.hosts[0].machine;
    world.processes_[0].claimants.find = [&](const auto&, const auto&) {
      return std::vector<Claim>{{1, 900, machine, "this host", 0, {7, 1}}};
    };
    world.add_at_root({1}, 2, milliseconds(100), 0, {7, number});
    world.run_until(milliseconds(400));
    EXPECT_EQ(world.is_in(0), number == 2);
    EXPECT_EQ(world.is_in(1), number == 2);
  }
}

TEST(SeekClaims, ASecondRankZeroEndsTheWorld) {
  Seeking world;
  int remembered = 0;
  world.add_many(1, 3);
  world.processes_[0].own.nodes[0].started = 5000;
  world.processes_[0].claimants.remember = [&] { ++remembered; };
  world.add_at_root({1}, 3, milliseconds(100), 5000);
  world.add_at_root({0}, 3, milliseconds(200), 14000);
  world.run_until(milliseconds(400));
  for (const std::uint32_t number : {0u, 1u, 2u}) {
    EXPECT_EQ(world.hears(number).find("EI0016: two processes claim rank 0"), 0u);
  }
  EXPECT_EQ(remembered, 1);
}

TEST(SeekClaims, OnlyAContestIsRemembered) {
  Seeking world;
  int remembered = 0;
  world.add_many(1, 3);
  world.processes_[0].own.nodes[0].started = 5000;
  world.processes_[0].claimants.remember = [&] { ++remembered; };
  world.add_at_root({1}, 3, milliseconds(100), 5100);
  world.add_at_root({1}, 3, milliseconds(200), 4000);  // it is left over
  world.add_at_root({2}, 4, milliseconds(300), 5100);  // another size ends the world
  world.run_until(milliseconds(400));
  for (const std::uint32_t number : {0u, 1u, 2u, 3u}) {
    EXPECT_EQ(world.of(number).state(), Seek::State::kOver);
  }
  EXPECT_EQ(remembered, 0);
}

// Start times are compared only within a machine, and attempts only within an agent.
TEST(Claims, CompareOnlyWithinAMachineAndAnAgent) {
  const auto started = [](std::uint64_t when, const std::string& machine = "here") {
    return Claim{1, 6, machine, "a", when, {}};
  };
  EXPECT_TRUE(is_older(started(5000), started(5101)));
  EXPECT_FALSE(is_older(started(5000), started(5100))) << "a second shows nothing";
  EXPECT_FALSE(is_older(started(0), started(5101))) << "not known";
  EXPECT_FALSE(is_older(started(5000, "there"), started(9000)));
  const auto attempt = [](std::uint32_t agent, std::uint32_t number,
                          const std::string& machine = "here") {
    return Claim{1, 6, machine, "a", 0, {agent, number}};
  };
  EXPECT_TRUE(is_earlier(attempt(2, 0), attempt(2, 1)));
  EXPECT_FALSE(is_earlier(attempt(2, 1), attempt(2, 1)));
  EXPECT_FALSE(is_earlier(attempt(2, 0), attempt(3, 1)));
  EXPECT_FALSE(is_earlier(attempt(2, 0, "there"), attempt(2, 1)));
  EXPECT_FALSE(is_earlier(attempt(0, 0), attempt(0, 1))) << "no agent";
}

TEST(SeekClaims, ARefusedProcessDoesNotCountAsDead) {
  Seeking world;
  world.add_many(1, 3);
  world.add_at_root({1}, 3, milliseconds(100), 0, {7, 0});
  world.add_at_root({2}, 3, milliseconds(200), 0, {7, 1});
  world.run_until(milliseconds(3100));
  EXPECT_EQ(world.hears(0), "EI0015: 1 of 3 ranks did not join; absent: 1");
}

// A relay loses a child, and therefore announces everything again. Below the relay, a process now
// claims a rank that another process has.
TEST(SeekClaims, ARankThatAProcessBringsLaterIsJudgedToo) {
  const auto part = [](std::uint32_t pid, const RankSet& ranks, const RankSet& below = {}) {
    Roster own;
    own.hosts.push_back({"here", "", "10.0.0.1"});
    own.nodes.push_back({0, 0, pid, static_cast<std::uint16_t>(pid), 5000, ranks});
    if (!below.empty()) own.nodes.push_back({0, 0, 99, 99, 5000, below});
    return own;
  };
  const auto asks = [&](const Roster& own) {
    ByteWriter out;
    put(out.put(kFirstJoinKind).put(kJoinVersion).put(std::uint32_t{5}).put_text(""), own);
    return out.take();
  };
  Seek root(part(1, {}), 0, "", std::nullopt, seconds(60), Time(seconds(1)));
  static_cast<void>(root.bring(0, 5, "", Time(milliseconds(1001))));
  static_cast<void>(root.frame(10, asks(part(2, {3}, {1})), Time(milliseconds(1002))));
  static_cast<void>(root.frame(11, asks(part(3, {2})), Time(milliseconds(1003))));
  EXPECT_EQ(root.state(), Seek::State::kSeated);
  ByteWriter whole;
  put(whole.put(static_cast<std::uint8_t>(kFirstJoinKind + 2)).put(std::uint8_t{1}),
      part(2, {3}, {1, 2, 4}));
  static_cast<void>(root.frame(10, whole.take(), Time(milliseconds(1004))));
  EXPECT_EQ(root.state(), Seek::State::kOver);
  EXPECT_EQ(root.why().message().find("EI0016: two processes claim rank 2"), 0u)
      << root.why().message();
}

}  // namespace
}  // namespace hccl::control
