// Small control trees in which each test chooses the time and the place of each fault, so that one
// rule of the relays decides which messages ranks get. Each node has one rank, with the same
// number.
#include <gtest/gtest.h>

#include <set>

#include "tests/control/oracle.h"

namespace hccl::control {
namespace {

using std::chrono::microseconds;

constexpr seconds kLong{30};

class SmallTree : public Oracle {
 public:
  SmallTree(std::uint32_t nodes, std::uint32_t fan_out, std::uint32_t hosts = 1)
      : Oracle(1, false, counted()) {
    delay_ = milliseconds(1);
    repair_ = seconds(3);
    Roster roster;
    for (std::uint32_t host = 0; host < hosts; ++host) {
      roster.hosts.push_back({"host " + std::to_string(host), "", "10.0.0.1"});
    }
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const std::uint32_t parent = node == 0 ? 0 : (node - 1) / fan_out;
      roster.nodes.push_back({node % hosts, parent, 100 + node, 0, 0, {node}});
      roster.node_of.push_back(node);
      heard_[node] = {};
    }
    make(std::make_shared<const Roster>(std::move(roster)));
  }

  // Events, each with its time.
  void dies(std::uint32_t node, nanoseconds when) {
    schedule(when, [=, this] { fault("deaths"), die(node); });
  }
  void stops(std::uint32_t node, nanoseconds when, nanoseconds length) {
    schedule(when, [=, this] { fault("stops"), stop(node, length); });
  }
  void leaves(std::uint32_t node, nanoseconds when) {
    schedule(when, [=, this] { fault("leaves"), leave(node); });
  }
  /// Reports on the only communicator of these trees.
  void reports(std::uint32_t rank, nanoseconds when, Code code = Code::kMemory,
               std::uint32_t culprit = 0) {
    schedule(when - now_, [=, this] { report(rank, 0, code, culprit); });
  }
  void groups(const RankSet& members) { groups_ = {members}; }
  void gathers(const RankSet& ranks, nanoseconds when, std::uint64_t number = 1) {
    if (groups_.empty()) groups_.emplace_back();
    groups_[0] |= ranks;
    for (const std::uint32_t rank : ranks.ranks()) {
      schedule(when - now_, [=, this] { gather(0, rank, number); });
    }
  }
  /// The rank refuses a call for a group or, if not `group`, another call for which ranks wait.
  void refuses(std::uint32_t rank, nanoseconds when, bool group = true) {
    awaited_ = rank;
    schedule(when, [=, this] { refuse(rank, group ? kEverything : kWaits, true); });
  }
  void waits(const RankSet& ranks, nanoseconds when) {
    for (const std::uint32_t rank : ranks.ranks()) {
      schedule(when, [=, this] { wait(rank, kWaits, 1, seconds(20)); });
    }
  }

  void summons(std::uint32_t node, nanoseconds when) {
    schedule(when, [=, this] {
      at(node, [=, this] { take(node, relay(node).summon(Uuid{5}, time())); });
    });
  }

  void until(nanoseconds when) { run_until(when); }
  void ends() {
    run_until(kLong);
    check_end();
  }
  /// The verdict that the node's rank got; empty if none.
  std::string verdict(std::uint32_t node) const {
    const auto& all = heard_.at(node).failures;
    return all.empty() ? "" : all.begin()->second.second.message();
  }
  /// The last verdict on a death that the node's rank got.
  std::string death(std::uint32_t node) const { return deaths_.at(node); }
  /// The nodes that ended, as far as `node` knows.
  std::set<std::uint32_t> gone(std::uint32_t node) const {
    std::set<std::uint32_t> all;
    for (const auto& [which, when] : heard_.at(node).gone) all.insert(which);
    return all;
  }
  /// The nodes whose ranks got the summons.
  std::multiset<std::uint32_t> summoned() const { return summoned_; }
  /// The ranks that log the late ranks.
  RankSet loggers() const { return loggers_; }
  RankSet late() const { return late_; }
  /// The ranks that were absent at a gathering's deadline, as reported to any rank.
  RankSet absent() const { return absent_; }
  Root root(std::uint32_t node) const { return relay(node).root(); }
  /// The number of complete gatherings, as reported to any rank.
  std::uint64_t whole() const { return counts_.events["whole gatherings"]; }
  /// The number of gatherings that failed because of a refused call, as reported to any rank.
  std::uint64_t refused() const { return counts_.events["gatherings that a refused call ends"]; }

 private:
  static Counts& counted() {
    static Counts counts;
    counts = {};
    return counts;
  }
  void went_on(std::uint32_t, std::uint32_t, std::uint64_t) override {}
  using Oracle::hear;
  void hear(std::uint32_t node, const News& news) override {
    Oracle::hear(node, news);
    if (news.summons.count(Uuid{5}) != 0) summoned_.insert(node);
    for (const auto& [key, verdict] : news.verdicts) {
      if (key.first == kEverything) deaths_[node] = verdict.why.message();
    }
  }
  void hear(std::uint32_t node, const Gatherings::Late& late) override {
    Oracle::hear(node, late);
    EXPECT_TRUE((loggers_ & late.arrived).empty()) << "once is enough";
    loggers_ |= late.arrived;
    late_ |= late.awaited;
  }

  void hear(std::uint32_t node, const Gatherings::Answer& answer) override {
    Oracle::hear(node, answer);
    if (answer.why.code() == Code::kTimeout) absent_ |= answer.sum.awaited();
  }

  RankSet loggers_, late_, absent_;
  std::multiset<std::uint32_t> summoned_;
  std::map<std::uint32_t, std::string> deaths_;
};

/// Node 1 is stopped, so nodes 5 and 6 get news that nodes 3 and 4 lack. Then nodes 0, 1 and 2 die.
void half_told(SmallTree& tree) {
  tree.stops(1, milliseconds(3050), kNever);
  for (const std::uint32_t node : {0U, 1U, 2U}) tree.dies(node, milliseconds(3300));
}

TEST(Relay, TellsADeathAtOnce) {
  SmallTree tree(9, 2);
  tree.dies(7, milliseconds(3100));
  tree.until(milliseconds(3140));
  for (const std::uint32_t node : {1U, 4U, 6U, 8U}) EXPECT_EQ(tree.gone(node), std::set{7U});
  tree.ends();
}

TEST(Relay, AllObeyANewRootAtOnce) {
  SmallTree tree(5, 1);
  tree.stops(0, milliseconds(3050), kNever);
  tree.reports(1, milliseconds(3100));
  tree.until(milliseconds(3600));
  for (const std::uint32_t node : {1U, 2U, 3U, 4U}) EXPECT_EQ(tree.root(node), (Root{2, 1}));
}

TEST(Relay, NewsPassAStoppedNode) {
  SmallTree tree(4, 1);
  tree.stops(1, milliseconds(3300), seconds(4));  // between two beats
  tree.reports(0, milliseconds(3350));
  tree.until(milliseconds(3800));
  for (const std::uint32_t node : {2U, 3U}) EXPECT_EQ(tree.verdict(node), "seen by 0");
  tree.gathers({0, 2, 3}, milliseconds(3850));
  tree.until(milliseconds(3950));
  EXPECT_EQ(tree.whole(), 3U);
  tree.ends();
}

TEST(Relay, ASilentNodeThatTurnsUpLives) {
  SmallTree tree(4, 2);
  tree.stops(3, milliseconds(3050), milliseconds(6500));
  tree.ends();
  for (std::uint32_t node = 0; node < 4; ++node) EXPECT_EQ(tree.gone(node).size(), 0U);
}

TEST(Relay, ASilentNodeIsDeadTwoBeatsLater) {
  SmallTree tree(4, 2);
  tree.stops(3, milliseconds(3050), kNever);
  tree.until(milliseconds(3050) + kPeerTimeout + seconds(2) + milliseconds(200));
  for (const std::uint32_t node : {0U, 1U, 2U}) EXPECT_EQ(tree.gone(node), std::set{3U});
  tree.ends();
}

// No node runs for a while, as when the machine sleeps.
TEST(Relay, TimeInWhichNoNodeRanIsNobodysSilence) {
  SmallTree tree(7, 2);
  for (std::uint32_t node = 0; node < 7; ++node) {
    tree.stops(node, milliseconds(3050), kPeerTimeout + seconds(4));
  }
  tree.until(seconds(25));
  for (std::uint32_t node = 0; node < 7; ++node) EXPECT_TRUE(tree.gone(node).empty());
}

// The others have given it up, and have ended before it runs again.
TEST(Relay, ANodeThatWasStoppedForTooLongSaysSoOfTheOthersEnds) {
  SmallTree tree(2, 1);
  tree.stops(0, seconds(3), kPeerTimeout + seconds(6));
  tree.dies(1, seconds(12));
  tree.until(seconds(20));
  EXPECT_EQ(tree.death(0),
            "rank 1 (10.0.0.1 pid 101) died or was cut off, after rank 0 had not run for 12 s "
            "(HCCL_PEER_TIMEOUT is 6 s)");
}

// The starved node runs only for moments, and acknowledges the frames that have come.
TEST(Relay, AStarvedNodeKeepsItsChildren) {
  SmallTree tree(3, 1);
  tree.stops(0, milliseconds(3050), milliseconds(150));
  tree.gathers({1, 2}, milliseconds(3052));
  tree.gathers({0}, milliseconds(3600));
  tree.stops(0, milliseconds(3230), milliseconds(180));
  tree.ends();
  for (const std::uint32_t node : {0U, 1U, 2U}) EXPECT_EQ(tree.root(node), (Root{1, 0}));
}

TEST(Relay, ASummonsReachesAllRanksOnce) {
  for (const std::uint32_t from : {0U, 1U, 6U}) {
    SmallTree tree(7, 2);
    tree.summons(from, milliseconds(3000));
    tree.until(milliseconds(3300));
    EXPECT_EQ(tree.summoned(), (std::multiset{0U, 1U, 2U, 3U, 4U, 5U, 6U}));
    tree.ends();
  }
}

TEST(Relay, ANewRootDecidesWhenItKnowsWhatOthersHeard) {
  SmallTree tree(7, 2);
  half_told(tree);
  tree.reports(0, milliseconds(3100));
  tree.reports(3, milliseconds(3110));
  tree.ends();
  for (const std::uint32_t node : {3U, 4U, 5U, 6U}) EXPECT_EQ(tree.verdict(node), "seen by 0");
}

TEST(Relay, ANewRootKnowsTheDead) {
  SmallTree tree(5, 2);
  tree.dies(4, milliseconds(2000));
  tree.dies(0, milliseconds(3000));
  tree.reports(2, milliseconds(4500), Code::kRemote, 4);
  tree.ends();
  EXPECT_EQ(tree.verdict(3), "seen by 2");
}

TEST(Relay, ANewRootHearsOfTheDead) {
  SmallTree tree(7, 2);
  half_told(tree);
  tree.dies(5, milliseconds(3100));
  tree.reports(4, milliseconds(5000), Code::kRemote, 5);
  tree.ends();
  EXPECT_EQ(tree.verdict(6), "seen by 4");
}

TEST(Relay, AnAnswerThatIsHalfToldReachesAll) {
  SmallTree tree(7, 2);
  half_told(tree);
  tree.gathers({3, 4}, milliseconds(3000));
  tree.gathers({5, 6}, milliseconds(3070));
  tree.ends();
  EXPECT_EQ(tree.whole(), 4U);
}

// Only node 1 gets the verdict of node 0, and node 1 is stopped. So node 2 becomes a root that
// decides.
TEST(Relay, AStoppedNodeDoesNotTellAPastRootsNews) {
  for (const bool dies : {true, false}) {
    SmallTree tree(4, 1);
    tree.stops(1, milliseconds(3300), seconds(5));  // between two beats
    tree.reports(0, milliseconds(3350));
    if (dies) tree.dies(0, milliseconds(3400));
    if (!dies) tree.stops(0, milliseconds(3400), kNever);
    tree.reports(2, milliseconds(3450));
    tree.ends();
    for (const std::uint32_t node : {1U, 2U, 3U}) EXPECT_EQ(tree.verdict(node), "seen by 2");
  }
}

TEST(Relay, AStoppedNodeHearsItsParentsNews) {
  SmallTree tree(2, 1);
  tree.stops(1, milliseconds(3300), seconds(2));
  tree.reports(0, milliseconds(3400));
  tree.until(milliseconds(5400));
  EXPECT_EQ(tree.verdict(1), "seen by 0");
  tree.ends();
}

// All but node 1 obey root 0 again, and get its verdict. Node 1 was asked to be the root, too.
TEST(Relay, ALaterRootHearsWhatChildrenOfAnEarlierOneHeard) {
  SmallTree tree(4, 8);
  tree.stops(0, milliseconds(3050), milliseconds(600));
  tree.stops(1, milliseconds(3060), seconds(4));
  tree.gathers({2, 3}, milliseconds(3100));
  tree.reports(1, milliseconds(3200), Code::kMemory, 2);
  tree.reports(1, milliseconds(3201), Code::kMemory, 0);
  tree.ends();
}

TEST(Relay, ARootThatLeavesTellsANodeThatStays) {
  for (int later = -10; later <= 60; ++later) {
    SmallTree tree(4, 1);
    tree.leaves(1, milliseconds(3020));
    tree.leaves(0, milliseconds(3020 + later));
    tree.ends();
    for (const std::uint32_t node : {2U, 3U}) {
      EXPECT_EQ(tree.gone(node), (std::set{0U, 1U}));
    }
  }
}

// Rank 0 has the answer and leaves. The nodes that were to pass the answer on die.
TEST(Relay, ANodeThatLeavesTellsItsAnswers) {
  for (int after = 500; after <= 3500; after += 250) {
    SmallTree tree(4, 1);
    tree.gathers({3}, milliseconds(3000));
    tree.gathers({0}, milliseconds(3100));
    tree.leaves(0, milliseconds(3101));
    for (const std::uint32_t node : {1U, 2U}) {
      tree.dies(node, milliseconds(3100) + microseconds(after));
    }
    tree.ends();
    EXPECT_EQ(tree.whole(), 2U) << "the nodes died " << after << " us after the answer";
  }
}

// Rank 1 has the answer, and has called again. Node 1 dies before rank 2 runs again, so rank 1's
// second call fails. Rank 2 then gets an error for the first gathering.
TEST(Relay, AnAnswerThatDiesWithANodeIsAnErrorForTheOthers) {
  SmallTree tree(3, 1);
  tree.gathers({2}, milliseconds(3000));
  tree.stops(2, milliseconds(3050), seconds(5));
  tree.gathers({1}, milliseconds(3100));
  tree.gathers({1}, milliseconds(3200), 2);
  tree.dies(1, seconds(6));
  tree.ends();
  EXPECT_EQ(tree.whole(), 1U);
}

// The deadline of the gathering is 7 s.
TEST(Relay, ANewRootHearsThePartsBeforeItNamesTheAbsent) {
  for (int before = 0; before < 20000; before += 100) {
    const nanoseconds when = seconds(7) - microseconds(before);
    SmallTree tree(7, 2);
    tree.groups({3, 4, 5, 6});
    tree.gathers({3, 4, 5}, milliseconds(3000));
    for (const std::uint32_t node : {0U, 1U, 2U}) tree.dies(node, when);
    tree.ends();
    EXPECT_EQ(tree.absent(), RankSet{6}) << "the others died " << before << " us before";
  }
}

TEST(Relay, AnAnswerPassesADeadNode) {
  for (int after = 2000; after <= 10000; after += 250) {
    SmallTree tree(9, 1);
    tree.gathers({3, 8}, milliseconds(3000));
    tree.dies(5, milliseconds(3000) + microseconds(after));
    tree.ends();
    EXPECT_EQ(tree.whole(), 2U);
  }
}

// Without the refusal, the relay above the two ranks would wait two seconds for the second one.
TEST(Relay, ARefusedCallForAGroupEndsItSoon) {
  SmallTree tree(7, 2);
  tree.groups({3, 4});
  tree.gathers({3}, milliseconds(3000));
  tree.refuses(4, milliseconds(3100));
  tree.until(milliseconds(3550));
  EXPECT_EQ(tree.refused(), 0U) << "the right call may follow";
  tree.until(milliseconds(3750));
  EXPECT_EQ(tree.refused(), 1U);
  tree.ends();
}

TEST(Relay, ARefusedCallForAGroupThatIsMadeRightHarmsNobody) {
  for (const int refused : {2000, 3100}) {  // long before the others call, or after their calls
    SmallTree tree(7, 2);
    tree.groups({3, 4, 6});
    tree.gathers({3, 6}, milliseconds(3000));
    tree.refuses(4, milliseconds(refused));
    tree.gathers({4}, milliseconds(refused == 2000 ? 3450 : 3550));
    tree.ends();
    EXPECT_EQ(tree.whole(), 3U);
  }
}

TEST(Relay, TheNextRootKnowsRefusedCalls) {
  for (const std::uint32_t refuser : {3U, 6U}) {  // a child of the next root, or deeper
    SmallTree tree(7, 2);
    tree.groups({refuser, 4, 5});
    tree.refuses(refuser, milliseconds(2900));
    tree.refuses(refuser, milliseconds(2950), false);
    tree.dies(0, milliseconds(3000));
    tree.gathers({4, 5}, milliseconds(5000));
    tree.waits({4, 5}, milliseconds(5000));
    tree.until(milliseconds(6500));
    EXPECT_EQ(tree.refused(), 2U);
    EXPECT_NE(tree.verdict(4).find("was refused"), std::string::npos);
    tree.ends();
  }
}

// Ranks 4 and 6 refuse one call each. Rank 4's refusal ends the first group, and then no longer
// counts for rank 3. Rank 6 has refused as many calls as rank 4, so only rank 4's second refusal
// counts for rank 6.
TEST(Relay, ARefusedCallThatWasToldCountsForThoseThatHadFewer) {
  SmallTree tree(7, 2);
  tree.groups({3, 4, 6});
  tree.refuses(4, milliseconds(2900));
  tree.refuses(6, milliseconds(2900));
  tree.gathers({3}, milliseconds(3000));
  tree.until(milliseconds(3700));
  EXPECT_EQ(tree.refused(), 1U);
  tree.refuses(4, milliseconds(100));
  tree.gathers({6}, milliseconds(4000), 2);
  tree.until(milliseconds(4700));
  EXPECT_EQ(tree.refused(), 2U);
  tree.ends();
}

// Node 4 answers the first gathering, so no root knows that the two ranks have met.
TEST(Relay, TheNextRootKnowsWhoHasMetSinceARefusedCall) {
  SmallTree tree(13, 2);
  tree.groups({9, 10});
  tree.refuses(10, milliseconds(2900));
  tree.gathers({9, 10}, milliseconds(2950));
  tree.dies(0, milliseconds(3000));
  tree.gathers({9}, milliseconds(5000), 2);
  tree.gathers({10}, milliseconds(8500), 2);
  tree.ends();
  EXPECT_EQ(tree.whole(), 4U);
}

TEST(Relay, ANewParentHearsRefusedCalls) {
  for (const bool again : {false, true}) {
    SmallTree tree(7, 1);
    tree.groups({0, 6});
    tree.stops(4, milliseconds(3000), again ? nanoseconds(seconds(2)) : kNever);
    tree.refuses(6, milliseconds(3050));
    tree.refuses(6, milliseconds(3060), false);
    tree.gathers({0}, milliseconds(3100));
    tree.waits({0}, milliseconds(3100));
    tree.until(milliseconds(5500));
    EXPECT_EQ(tree.refused(), 1U);
    EXPECT_NE(tree.verdict(0).find("was refused"), std::string::npos);
    tree.ends();
  }
}

TEST(Relay, RanksThatWaitHearWhoIsLate) {
  for (const std::uint32_t late : {8U, 9U}) {
    SmallTree tree(14, 3, 2);
    tree.groups(RankSet::range(0, 13));
    const RankSet came = late == 8 ? RankSet{1, 2, 4, 7, 12} : RankSet{1, 2, 4, 7};
    tree.gathers(came, milliseconds(3000));
    tree.until(milliseconds(4900));
    EXPECT_TRUE(tree.loggers().empty());
    tree.until(milliseconds(6900));
    EXPECT_EQ(tree.loggers(), late == 8 ? came : (RankSet{1, 2})) << "one rank of each host";
    EXPECT_EQ(tree.late(), RankSet::range(0, 13) - came);
    tree.ends();
  }
}

}  // namespace
}  // namespace hccl::control
