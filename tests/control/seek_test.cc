// Joining step by step: which messages processes get in small worlds, and how they react to wrong
// bytes.
#include <gtest/gtest.h>

#include "tests/control/seek_world.h"

namespace hccl::control {
namespace {

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
    EXPECT_EQ(world.of(number).node(), number);  // nodes are numbered by rank
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
  for (const std::uint32_t before : {1u, 12u}) {  // the second claimant is at the root, or deeper
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

TEST(Seek, AnImpossibleRankIsRefusedAlone) {
  for (const std::uint32_t others : {1u, 9u}) {  // at the root, or below another process
    Seeking world;
    world.add_many(others, others + 1);
    const std::uint32_t wrong = world.add({others + 1}, others + 1, seconds(1));
    world.add({others}, others + 1, milliseconds(1500));
    world.run_until(seconds(2));
    EXPECT_NE(world.hears(wrong).find("impossible"), std::string::npos) << world.hears(wrong);
    for (std::uint32_t number = 0; number <= others + 1; ++number) {
      EXPECT_EQ(world.is_in(number), number != wrong) << number << ": " << world.hears(number);
    }
  }
}

TEST(Seek, NobodyTakesPartInAWorldOfNoRanks) {
  Seeking world;
  world.add({}, 0, seconds(0));
  world.add({}, 0, seconds(1));
  world.run_until(seconds(2));
  EXPECT_EQ(world.of(1).state(), Seek::State::kOver);
  EXPECT_EQ(world.hears(1), "a process of 0 ranks is impossible");
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
  EXPECT_EQ(roster->nodes.size(), 10u);  // process 1 is gone
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

// In all versions, the first bytes of the first frame are its kind and the version.
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

TEST(Seek, ARankOfAReleaseWithoutATreeIsNamed) {
  Seeking world;
  world.add_many(1, 2);
  world.run_until(milliseconds(1));
  Seek root = world.of(0);
  ByteWriter hello;
  hello.put(std::uint8_t{1}).put(std::uint32_t{7}).put(std::uint32_t{2}).put_text("agreement");
  hello.put(std::uint32_t{1}).put_text("more about the rank");
  const auto step = root.frame(7, hello.bytes(), Time(milliseconds(2)));
  ASSERT_EQ(step.outs.size(), 1u);
  EXPECT_EQ(step.outs[0].frame.front(), 3) << "as such a rank expects it";
  const std::string text = "rank 1 speaks protocol 7, the root " + std::to_string(kJoinVersion);
  EXPECT_NE(step.outs[0].frame.find(text), std::string::npos);
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

/// For each frame, a copy of the process gets the frame cut off, lengthened and with flipped bits.
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
  /// Expects that the line ends, and that no process gets anything from the frame.
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
    const bool whole = seed % 2 == 0;  // otherwise the tenth process claims a rank of its parent
    world.add_many(whole ? 12 : 9, 14);
    if (whole) {  // a process below another one is of an earlier attempt
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
