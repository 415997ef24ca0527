// Joining step by step: what processes hear in worlds of a few, and what wrong bytes do.
#include <gtest/gtest.h>

#include "tests/control/seek_world.h"

namespace hccl::control {
namespace {

/// Process 0, the root, starts first. All lines take 1 ms or 20 ms.
class Seeking : public JoiningWorld {
 public:
  explicit Seeking(std::uint64_t seed = 1) : JoiningWorld(seed, false) {}
  using JoiningWorld::add;
  using JoiningWorld::bring;
  using JoiningWorld::die;
  using JoiningWorld::is_open;
  using JoiningWorld::processes_;
  using JoiningWorld::run_until;
  using JoiningWorld::schedule;

  /// Processes of one rank each, one after the other.
  void add_many(std::uint32_t count, std::uint32_t size) {
    for (std::uint32_t rank = 0; rank < count; ++rank) add({rank}, size, milliseconds(90 * rank));
  }
  const Seek& of(std::uint32_t number) const { return *processes_[number].seek; }
  /// A process of the root's machine.
  std::uint32_t add_at_root(RankSet ranks, std::uint32_t size, nanoseconds starts,
                            std::uint64_t started, Attempt attempt = {}) {
    const std::uint32_t number = add(std::move(ranks), size, starts);
    processes_[number].own.hosts[0].machine = processes_[0].own.hosts[0].machine;
    processes_[number].own.nodes[0].started = started;
    processes_[number].own.nodes[0].attempt = attempt;
    return number;
  }
  bool is_in(std::uint32_t number) const { return of(number).state() == Seek::State::kIn; }
  std::string hears(std::uint32_t number) const { return of(number).why().message(); }
};

TEST(Seek, AWorldOfOneProcessIsWholeAtOnce) {
  Seeking world;
  world.add(RankSet::range(0, 4), 4, seconds(0));
  world.run_until(milliseconds(1));
  ASSERT_TRUE(world.is_in(0));
  EXPECT_EQ(world.of(0).roster()->node_of, std::vector<std::uint32_t>(4, 0));
  EXPECT_TRUE(world.of(0).lines().empty());
}

TEST(Seek, EightChildrenSitAtANodeAndOthersBelowThem) {
  Seeking world;
  world.add_many(17, 17);
  world.run_until(seconds(3));
  const auto roster = world.of(0).roster();
  ASSERT_NE(roster, nullptr);
  const auto children = roster->children();
  EXPECT_EQ(children[0].size(), 8u);
  for (const std::uint32_t child : children[0]) EXPECT_EQ(children[child].size(), 1u);
  for (std::uint32_t number = 0; number < 17; ++number) {
    ASSERT_TRUE(world.is_in(number));
    EXPECT_EQ(world.of(number).node(), number);  // by rank
  }
}

TEST(Seek, ARankOfTheRootsProcessMayJoinAtItsNode) {
  for (const nanoseconds late : {milliseconds(5), milliseconds(500)}) {
    Seeking world;
    world.add({}, 0, seconds(0));
    world.add({1}, 3, milliseconds(10));
    world.add({2}, 3, milliseconds(12));
    world.bring(0, 3, late);
    world.run_until(seconds(1));
    ASSERT_TRUE(world.is_in(0) && world.is_in(1) && world.is_in(2));
    EXPECT_EQ(world.of(0).roster()->node_of, (std::vector<std::uint32_t>{0, 1, 2}));
  }
  Seeking other;
  other.add({}, 0, seconds(0));
  other.add({1}, 3, milliseconds(10));
  other.bring(0, 2, milliseconds(500));
  other.run_until(seconds(1));
  for (const std::uint32_t number : {0, 1}) {
    EXPECT_NE(other.hears(number).find("says 2 ranks"), std::string::npos) << other.hears(number);
  }
  Seeking twice;
  twice.add({}, 0, seconds(0));
  twice.add({0}, 2, milliseconds(10));
  twice.bring(0, 2, milliseconds(500));
  twice.run_until(seconds(1));
  EXPECT_NE(twice.hears(1).find("rank 0"), std::string::npos) << twice.hears(1);
}

TEST(Seek, TheRootMayHaveNoRankAndNotKnowTheSize) {
  Seeking world;
  world.add({}, 0, seconds(0));
  world.add({1}, 2, seconds(10));
  world.add({0}, 2, seconds(12));
  world.run_until(seconds(13));
  ASSERT_TRUE(world.is_in(0) && world.is_in(1) && world.is_in(2));
  EXPECT_EQ(world.of(0).roster()->node_of, (std::vector<std::uint32_t>{1, 2}));
}

TEST(Seek, AbsentRanksAreNamedAtTheTimeout) {
  Seeking world;
  world.add({0}, 4, seconds(0));
  world.add({2}, 4, seconds(1));
  world.add({3}, 4, seconds(0));
  world.schedule(seconds(2), [&world] { world.die(2); });
  world.run_until(milliseconds(2990));
  EXPECT_EQ(world.of(1).state(), Seek::State::kSeated);
  world.run_until(milliseconds(3100));
  const std::string why = "EI0015: 2 of 4 ranks did not join; absent: 1, 3; died while joining: 3";
  EXPECT_EQ(world.hears(0), why);
  EXPECT_EQ(world.hears(1), why);
  world.add({1}, 4, seconds(4));
  world.run_until(seconds(5));
  EXPECT_EQ(world.hears(3), why);
}

TEST(Seek, ARankThatDiedMayComeAgain) {
  Seeking world;
  world.add({0}, 3, seconds(0));
  world.add({1}, 3, seconds(0));
  world.schedule(seconds(1), [&world] { world.die(1); });
  world.add({1}, 3, milliseconds(1500));
  world.add({2}, 3, milliseconds(1600));
  world.run_until(seconds(2));
  EXPECT_TRUE(world.is_in(0) && world.is_in(2) && world.is_in(3));
}

TEST(Seek, TwoClaimsOfOneRankAreNamed) {
  for (const std::uint32_t before : {1u, 12u}) {  // the second claim sits at the root, or deeper
    Seeking world;
    world.add_many(before, 20);
    const std::uint32_t first = world.add({15, 16}, 20, seconds(2));
    const std::uint32_t second = world.add({14, 16}, 20, milliseconds(2100));
    world.run_until(milliseconds(2900));
    for (std::uint32_t number = 0; number <= second; ++number) {
      const std::string why = world.hears(number);
      EXPECT_EQ(why.find("EI0016: two processes claim rank 16: "), 0u) << why;
      for (const std::uint32_t each : {first, second}) {
        EXPECT_NE(why.find("pid " + std::to_string(500 + each)), std::string::npos) << why;
      }
    }
  }
}

// At the root, or below another process. It has a child, which gets another seat.
TEST(Seek, AProcessThatIsLeftOverIsRefusedAlone) {
  for (const std::uint32_t others : {1u, 9u}) {
    for (const bool first : {false, true}) {  // it comes before the right one, or after it
      Seeking world;
      world.add_many(others, others + 10);
      for (auto& each : world.processes_) each.own.nodes[0].started = 5000;
      const auto add = [&](bool old, nanoseconds when) {
        // If the right one comes last, the world has all ranks while the other one leaves.
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

TEST(Seek, AProcessOlderThanTheRootOnlyIsNotLeftOver) {
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

TEST(Seek, OnlyTheLastAttemptOfAnAgentMayJoin) {
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

TEST(Seek, ARootOfAnEarlierAttemptEndsTheWorld) {
  Seeking world;
  world.add_many(2, 4);
  world.processes_[0].own.nodes[0].attempt = {7, 0};
  world.add_at_root({3}, 4, milliseconds(500), 0, {7, 1});
  world.run_until(milliseconds(900));
  for (const std::uint32_t number : {0u, 1u, 2u}) {
    EXPECT_EQ(world.hears(number).find("EI0016: rank 0 (10.0.0.0 pid 500, restart 0) is left"), 0u);
  }
}

TEST(Seek, AProcessAsYoungAsTheRootIsNotLeftOver) {
  Seeking world;
  world.add_many(1, 4);
  world.processes_[0].own.nodes[0].started = 5000;
  world.add_at_root({2}, 4, milliseconds(500), 5100);
  world.add_at_root({2}, 4, milliseconds(600), 5300);
  world.run_until(milliseconds(900));
  EXPECT_EQ(world.of(0).state(), Seek::State::kOver);
  EXPECT_EQ(world.hears(1), world.hears(0));
}

// A newcomer may be on its way to a process that is refused alone.
TEST(Seek, AProcessThatIsRefusedAloneRefusesNobody) {
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

// A process that has not come claims rank 1: it replaces the one that came, or both jobs end.
TEST(Seek, AProcessThatHasNotComeMayClaimARank) {
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
    if (started == 3000) {  // it is left over
      for (const std::uint32_t number : {0u, 1u, 2u}) EXPECT_TRUE(world.is_in(number));
    } else if (started == 5200) {  // no difference in age
      EXPECT_NE(world.hears(2).find("this host pid 900 (started 52 s"), std::string::npos);
      EXPECT_EQ(world.hears(1), world.hears(0));
      EXPECT_EQ(remembered, 1);
    } else {  // the one that came is left over
      EXPECT_EQ(world.of(1).state(), Seek::State::kOver);
      EXPECT_EQ(world.of(2).state(), Seek::State::kSeated);
      world.add_at_root({1}, 3, milliseconds(500), 6000);
      world.run_until(milliseconds(900));
      for (const std::uint32_t number : {0u, 2u, 3u}) EXPECT_TRUE(world.is_in(number));
      EXPECT_EQ(asked, 2);
    }
  }
}

TEST(Seek, ARefusedProcessDoesNotCountAsDead) {
  Seeking world;
  world.add_many(1, 3);
  world.add_at_root({1}, 3, milliseconds(100), 0, {7, 0});
  world.add_at_root({2}, 3, milliseconds(200), 0, {7, 1});
  world.run_until(milliseconds(3100));
  EXPECT_EQ(world.hears(0), "EI0015: 1 of 3 ranks did not join; absent: 1");
}

TEST(Seek, SizesAndConfigurationsThatDifferAreNamed) {
  for (const bool size : {true, false}) {
    Seeking world;
    world.add_many(2, 4);
    const std::uint32_t wrong = world.add({3}, size ? 5 : 4, seconds(1));
    if (!size) world.processes_[wrong].agreement = "other";
    world.run_until(seconds(2));
    const std::string one = "EI0016: rank 3 (10.0.0.0 pid 502)", root = "rank 0 (10.0.0.0 pid 500)";
    const std::string why = size ? one + " says 5 ranks, " + root + " says 4 ranks"
                                 : one + " has \"other\", " + root + " has \"same\"";
    for (std::uint32_t number = 0; number < 3; ++number) EXPECT_EQ(world.hears(number), why);
  }
}

TEST(Seek, NobodyTakesPartInAWorldOfNoRanks) {
  Seeking world;
  world.add({}, 0, seconds(0));
  world.add({}, 0, seconds(1));
  world.run_until(seconds(2));
  EXPECT_EQ(world.of(1).state(), Seek::State::kOver);
  EXPECT_NE(world.hears(0).find("says 0 ranks"), std::string::npos);
}

TEST(Seek, AnOrphanGetsANewSeat) {
  Seeking world;
  world.add({0}, 10, seconds(0));
  world.add({}, 10, milliseconds(90));
  for (std::uint32_t rank = 1; rank < 9; ++rank)
    world.add({rank}, 10, milliseconds(100 + 90 * rank));
  world.schedule(seconds(2), [&world] { world.die(1); });  // the parent of the ninth child
  world.run_until(milliseconds(1900));
  ASSERT_EQ(world.of(9).state(), Seek::State::kSeated);
  world.add({9}, 10, milliseconds(2500));
  world.run_until(milliseconds(2900));
  ASSERT_TRUE(world.is_in(9));
  const auto roster = world.of(9).roster();
  EXPECT_EQ(roster->nodes.size(), 10u);  // without process 1
  EXPECT_EQ(roster->ancestors(8), std::vector<std::uint32_t>{0});
}

TEST(Seek, AllHearThatTheRootDied) {
  Seeking world;
  world.add_many(17, 18);
  world.schedule(seconds(2), [&world] { world.die(0); });
  world.run_until(milliseconds(2300));
  for (std::uint32_t number = 1; number < 17; ++number) {
    EXPECT_EQ(world.hears(number), "the root of the job died while joining");
  }
}

TEST(Seek, ARootThatNeverAnswersIsNamed) {
  Seeking world;
  world.add({0}, 2, seconds(100));
  world.add({1}, 2, seconds(1));
  world.run_until(milliseconds(4100));
  EXPECT_EQ(world.hears(1), "EI0006: the root at 10.0.0.0:1000 does not answer: refused");
}

TEST(Seek, WhoComesWhenJoiningIsOverHearsSo) {
  Seeking world;
  world.add_many(2, 2);
  world.add({1}, 2, seconds(1));
  world.run_until(seconds(2));
  EXPECT_TRUE(world.is_in(0) && world.is_in(1));
  EXPECT_EQ(world.hears(2), "rank 1 (10.0.0.0 pid 502) came when joining was over");
}

// The first bytes of the first frame are its kind and the version, for ever.
TEST(Seek, AnotherVersionIsNamed) {
  Seeking world;
  world.add_many(1, 2);
  world.run_until(milliseconds(1));
  Seek root = world.of(0);
  ByteWriter ask;
  ask.put(std::uint8_t{64}).put(std::uint32_t{kJoinVersion + 1}).put_text("other bytes");
  const auto step = root.frame(7, ask.bytes(), Time(milliseconds(2)));
  ASSERT_EQ(step.outs.size(), 1u);
  EXPECT_TRUE(step.outs[0].close);
  EXPECT_NE(step.outs[0].frame.find("EI0008: version mismatch"), std::string::npos);
  EXPECT_EQ(root.state(), Seek::State::kOver);
}

TEST(Seek, ARootThatGivesUpTellsAll) {
  Seeking world;
  world.add_many(2, 3);
  world.run_until(seconds(1));
  Seek root = world.of(0);
  const auto step = root.give_up({Code::kUnavail, "no descriptors"}, Time(seconds(1)));
  ASSERT_EQ(step.outs.size(), 1u);
  EXPECT_NE(step.outs[0].frame.find("no descriptors"), std::string::npos);
  EXPECT_EQ(root.why().message(), "no descriptors");
}

/// Each frame also comes cut off, lengthened and flipped, to a copy of the process.
class WrongBytes : public Seeking {
 public:
  explicit WrongBytes(std::uint64_t seed) : Seeking(seed) {}
  std::map<int, int> seen, ended;

 private:
  void comes(std::uint32_t number, LineId id, const std::string& frame) override {
    const Seek& seek = of(number);
    if (seek.state() == Seek::State::kIn || seek.state() == Seek::State::kOver) return;
    for (int i = 0; i < 6; ++i) {
      give(seek, id, frame.substr(0, random_.below(frame.size())));
      give(seek, id, frame + std::string(1 + random_.below(9), 'x'));
      std::string flipped = frame;
      flipped[random_.below(frame.size())] ^= static_cast<char>(1 << random_.below(8));
      Seek copy = seek;
      std::size_t size = 0;
      for (const auto& out : copy.frame(id, flipped, time()).outs) size += out.frame.size();
      EXPECT_LT(size, std::size_t{1} << 16);
    }
  }
  /// The line ends, and nobody hears anything of the frame.
  void give(const Seek& seek, LineId id, const std::string& bytes) {
    Seek copy = seek;
    const auto step = copy.frame(id, bytes, time());
    ++seen[static_cast<unsigned char>(bytes[0])];
    bool closed = false;
    for (const auto& out : step.outs) closed = closed || (out.line == id && out.close);
    ended[static_cast<unsigned char>(bytes[0])] += closed;
    EXPECT_TRUE(copy.state() == Seek::State::kSeeking || copy.state() == Seek::State::kSeated);
    EXPECT_FALSE(step.dial) << "frame of kind " << static_cast<int>(bytes[0]);
  }
};

TEST(Seek, WrongBytesEndTheLineAndTellNothing) {
  std::map<int, int> seen, ended;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    WrongBytes world(seed);
    const bool whole = seed % 2 == 0;  // else the tenth process claims a rank of its parent
    world.add_many(whole ? 12 : 9, 14);
    if (whole) {  // a process below another one is of an earlier attempt than the last
      world.processes_[9].own.nodes[0].attempt = {7, 0};
      const std::string machine = world.processes_[9].own.hosts[0].machine;
      for (const RankSet& ranks : {RankSet{12, 13}, RankSet{9}}) {
        const std::uint32_t number = world.add(ranks, 14, milliseconds(1200));
        world.processes_[number].own.hosts[0].machine = machine;
        world.processes_[number].own.nodes[0].attempt = {7, 1};
      }
    } else {
      world.add({1, 13}, 14, milliseconds(1200));
    }
    if (whole) world.schedule(milliseconds(1150), [&world] { world.die(4); });
    if (whole) world.add({4}, 14, milliseconds(1400));
    world.run_until(seconds(5));
    for (const auto& [kind, count] : world.seen) seen[kind] += count;
    for (const auto& [kind, count] : world.ended) ended[kind] += count;
  }
  for (int kind = 64; kind < 70; ++kind) {
    EXPECT_GT(seen[kind], 0) << "no frame of kind " << kind;
    EXPECT_EQ(ended[kind], seen[kind]) << "kind " << kind;
  }
}

}  // namespace
}  // namespace hccl::control
