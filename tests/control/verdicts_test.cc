// The root's verdicts: those on merged reports, and those of roots that follow each other.
#include <gtest/gtest.h>

#include <random>

#include "tests/control/verdicts_parts.h"

namespace hccl::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

News news_of(std::initializer_list<Verdict> verdicts) {
  News news;
  for (const Verdict& each : verdicts) news.merge(each);
  return news;
}

// ---- communicators of the past ----

// All ranks destroy thousands of communicators. A rank that waits in one of the last thousand gets
// an error, no matter how many were destroyed before.
TEST(Verdicts, DestroyedCommunicatorsOfThePastHideNoneOfThePresent) {
  constexpr std::uint32_t kSize = 8;
  Verdicts all(roster_of(kSize), 1);
  const auto scope = [](std::uint32_t number) {
    return Uuid{static_cast<std::uint8_t>(97 * number), static_cast<std::uint8_t>(number),
                static_cast<std::uint8_t>(number >> 8), 1};
  };
  for (std::uint32_t number = 0; number < 2 * kScopesCap + 10; ++number) {
    for (std::uint32_t rank = 1; rank < kSize; ++rank) {
      all.refused({scope(number), rank, 1, 5, 1, "", {}});
    }
    if (number < 1000 || number % 100 != 0) continue;
    const Uuid past = scope(number - 1000);
    const auto news =
        list(all.waits(wait_of(past, 5, "reduce", {0}, RankSet::range(1, kSize)), {}));
    ASSERT_EQ(news.size(), 1u) << number;
    EXPECT_EQ(news[0].scope, past);
    EXPECT_EQ(news[0].why.culprit(), 1);
    EXPECT_TRUE(has(news[0].why, "rank 1 (")) << news[0].why.message();
    EXPECT_TRUE(has(news[0].why, "has destroyed its communicator; rank 0 called reduce"));
  }
}

// ---- merged reports ----

// Ranks of a large world wait for a rank that never comes, for one of three reasons. Relays merge
// the reports, differently in each round.
TEST(Verdicts, OnMergedReportsAreThoseOnTheReportsOfEachRank) {
  constexpr std::uint32_t kSize = 120;
  std::mt19937_64 random(5);
  for (int round = 0; round < 30; ++round) {
    Verdicts each(roster_of(kSize), 1), merged(roster_of(kSize), 1);
    const auto late = static_cast<std::uint32_t>(random() % kSize);
    const std::string last = "allreduce #4";
    Time now{};
    const auto both = [&](auto event) {
      event(each);
      event(merged);
    };
    const int reason = round % 3;
    if (reason == 0)
      both([&](Verdicts& all) { all.refused({scope_of(1), late, 1, 5, 1, "bad", {}}); });
    if (reason == 1) both([&](Verdicts& all) { all.ends(late, last, now); });
    if (reason == 2) both([&](Verdicts& all) { all.left({late}, now); });
    std::vector<Verdict> apart, together;
    for (int times = 0; times < 4 && apart.empty() && together.empty(); ++times) {
      std::vector<RankSet> parts(1 + random() % 8);
      for (std::uint32_t rank = 0; rank < kSize; ++rank) {
        if (rank != late) parts[random() % parts.size()] |= {rank};
      }
      for (const RankSet& part : parts) {
        if (part.empty()) continue;
        const auto news = list(merged.waits(wait_of(scope_of(1), 5, "reduce", part, {late}), now));
        together.insert(together.end(), news.begin(), news.end());
      }
      for (const std::uint32_t rank : (RankSet::range(0, kSize) - RankSet{late}).ranks()) {
        const auto news = list(each.waits(wait_of(scope_of(1), 5, "reduce", {rank}, {late}), now));
        apart.insert(apart.end(), news.begin(), news.end());
      }
      now += milliseconds(400);
    }
    ASSERT_EQ(apart.size(), 1u) << "reason " << reason;
    ASSERT_EQ(together.size(), 1u);
    EXPECT_EQ(together[0].why.culprit(), static_cast<int>(late));
    EXPECT_EQ(together[0].why.code(), apart[0].why.code());
    EXPECT_TRUE(has(together[0].why, reason == 0   ? "refused: bad"
                                     : reason == 1 ? "after allreduce #4"
                                                   : "has destroyed"));
  }
}

TEST(Verdicts, NameTheLowestRankOfEachOfTwoMergedCalls) {
  Verdicts root(roster_of(20), 1);
  const auto wait = [&](const std::string& call, const RankSet& ranks) {
    return root.waits(wait_of(scope_of(1), 5, call, ranks, {19}), Time{});
  };
  EXPECT_TRUE(wait("allreduce (count 5)", RankSet::range(3, 9)).empty());
  EXPECT_TRUE(wait("allreduce (count 5)", RankSet::range(0, 3)).empty());
  const auto news = list(wait("allreduce (count 7)", {11, 12}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_TRUE(has(news[0].why,
                  "rank 11 called allreduce (count 7), rank 0 called allreduce "
                  "(count 5)"))
      << news[0].why.message();
}

TEST(Verdicts, NameTheRanksThatDidNotCallAtATimeout) {
  Verdicts root(roster_of(20), 1);
  EXPECT_TRUE(
      root.waits(wait_of(scope_of(1), 5, "allreduce", RankSet::range(0, 10), RankSet::range(5, 14)),
                 Time{})
          .empty());
  EXPECT_TRUE(root.waits(wait_of(scope_of(1), 6, "reduce", {13}, {0}), Time{}).empty());
  const auto news = list(root.report(2, scope_of(1), {Code::kTimeout, "no end"}, Time{}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].why.message(),
            "no end; rank 13 is in reduce; these did not call it (world ranks): 10-12");
}

// A message has a scope of its own, whose first half is that of the communicator.
TEST(Verdicts, NameTheMessageForWhichARankWaitsAtATimeoutOfACollective) {
  const Uuid group{1}, message{1, 0, 0, 0, 0, 0, 0, 0, 3}, other{2, 0, 0, 0, 0, 0, 0, 0, 3};
  for (const bool old : {false, true}) {
    Verdicts root(roster_of(4), 1);
    EXPECT_TRUE(root.waits(wait_of(group, 5, "allreduce", {0, 3}, {1, 2}), Time{}).empty());
    EXPECT_TRUE(root.waits(wait_of(message, 9, "receive from rank 0", {1}, {0}), Time{}).empty());
    EXPECT_TRUE(root.waits(wait_of(other, 9, "another group", {2}, {0}), Time{}).empty());
    const Time now = Time{} + milliseconds(old ? 1001 : 999);
    const auto news = list(root.report(0, group, {Code::kTimeout, "no end"}, now));
    ASSERT_EQ(news.size(), 1u);
    EXPECT_EQ(news[0].why.message(),
              old ? "no end; these did not call it (world ranks): 1-2"
                  : "no end; rank 1 is in receive from rank 0; these did not call it (world "
                    "ranks): 2");
  }
}

// When a rank reports again, its earlier wait and the ranks that it then awaited no longer count.
TEST(Verdicts, TheLastReportOfARankCounts) {
  Verdicts root(roster_of(8), 1);
  EXPECT_TRUE(root.waits(wait_of(scope_of(1), 5, "a", {0, 1}, {7}), Time{}).empty());
  EXPECT_TRUE(root.waits(wait_of(scope_of(1), 6, "b", {0, 1}, {6}), Time{}).empty());
  EXPECT_TRUE(root.waits(wait_of(scope_of(1), 5, "c", {2}, {3}), Time{}).empty())
      << "nobody waits in call a";
  const auto news = list(root.report(2, scope_of(1), {Code::kTimeout, "no end"}, Time{}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].why.culprit(), 3);
}

// Communicators that are no longer used may have left many reports.
TEST(Verdicts, OldReportsDoNotHideADifference) {
  Verdicts root(roster_of(2), 1);
  for (std::uint32_t i = 0; i < 3 * kScopesCap; ++i) {
    const Uuid scope{2, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8)};
    EXPECT_TRUE(root.waits(wait_of(scope, 1, "allreduce", {0}, {1}), Time{}).empty());
  }
  EXPECT_TRUE(root.waits(wait_of(scope_of(1), 1, "allreduce", {0}, {1}), Time{}).empty());
  EXPECT_EQ(list(root.waits(wait_of(scope_of(1), 1, "broadcast", {1}, {0}), Time{})).size(), 1u);
}

// ---- circles ----

// The messages of a communicator have scopes of their own, with the same first half.
Uuid message_scope(std::uint8_t number) {
  Uuid scope = scope_of(1);
  scope.back() = number;
  return scope;
}

struct Waiting {
  Uuid scope;
  std::string call;
  std::uint32_t rank;
  RankSet awaited;
};

/// Each rank reports its wait every 0.4 s. Returns the verdicts, and the seconds until then.
std::pair<std::vector<Verdict>, double> wait_in(const std::vector<Waiting>& all, double until) {
  Verdicts root(roster_of(8), 1, seconds(5));
  for (Time now = Time{} + seconds(100);; now += milliseconds(400)) {
    const std::chrono::duration<double> since = now - Time{} - seconds(100);
    if (since.count() > until) return {{}, since.count()};
    for (const Waiting& each : all) {
      const auto news =
          list(root.waits(wait_of(each.scope, 1, each.call, {each.rank}, each.awaited), now));
      if (!news.empty()) return {news, since.count()};
    }
  }
}

// A rank that sends and a rank in a collective, and senders in a ring.
TEST(Verdicts, RanksThatWaitForEachOtherAreAnError) {
  const std::vector<Waiting> two{{message_scope(1), "send #1", 2, {5}},
                                 {scope_of(1), "allreduce #1", 5, {2, 3, 4}},
                                 {scope_of(1), "allreduce #1", 6, {2, 3, 4}}};
  const auto [verdicts, after] = wait_in(two, 20);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].why.code(), Code::kPara);
  EXPECT_EQ(verdicts[0].why.message(),
            "EI0005: the ranks' calls differ, so they wait for each other: rank 5 waits for rank 2 "
            "in allreduce #1, rank 2 waits for rank 5 in send #1 (world ranks)");
  EXPECT_GE(after, 5.0);
  EXPECT_LE(after, 5.9);

  std::vector<Waiting> ring;
  for (std::uint8_t rank = 0; rank < 8; ++rank) {
    ring.push_back(
        {message_scope(1 + rank), "send " + std::to_string(rank), rank, {(rank + 1U) % 8}});
  }
  const auto [of_ring, later] = wait_in(ring, 20);
  ASSERT_EQ(of_ring.size(), 1u);
  EXPECT_NE(of_ring[0].why.message().find(
                "rank 0 waits for rank 1 in send 0, rank 1 waits for rank 2 in send 1, "),
            std::string::npos)
      << of_ring[0].why.message();
}

TEST(Verdicts, RanksThatWaitForOneThatComputesAreNoError) {
  for (const std::vector<Waiting>& each : {
           // Rank 0 computes.
           std::vector<Waiting>{{message_scope(1), "send #1", 2, {5}},
                                {message_scope(2), "send #1", 5, {0}},
                                {scope_of(1), "allreduce #1", 6, {0, 2, 5}}},
           // The ranks wait in different communicators, perhaps on different threads.
           std::vector<Waiting>{{scope_of(1), "allreduce #1", 2, {5}},
                                {scope_of(2), "allreduce #1", 5, {2}}},
           // All wait in one call.
           std::vector<Waiting>{{scope_of(1), "allreduce #1", 2, {5}},
                                {scope_of(1), "allreduce #1", 5, {2}}},
       }) {
    EXPECT_TRUE(wait_in(each, 60).first.empty());
  }
}

// Rank 5 has ended the call in which it waited for rank 2.
TEST(Verdicts, AWaitThatIsOverIsInNoCircle) {
  Verdicts root(roster_of(8), 1, seconds(5));
  const auto at = [](int tenths) { return Time{} + seconds(100) + tenths * milliseconds(100); };
  for (int tenths = 0; tenths < 600; tenths += 4) {
    const Wait sends = wait_of(message_scope(1), 1, "send #1", {2}, {5});
    EXPECT_TRUE(root.waits(sends, at(tenths)).empty());
    if (tenths > 40) continue;
    const Wait reduces = wait_of(scope_of(1), 1, "allreduce #1", {5}, {2});
    EXPECT_TRUE(root.waits(reduces, at(tenths)).empty());
  }
}

// ---- reports ----

Status ended(int other, const std::string& text = "it ended") {
  return {Code::kRemote, text, other};
}

// A rank that has lost a connection closes its other connections.
TEST(Verdicts, ReportsOfEndedConnectionsLeadToTheirCause) {
  struct Case {
    std::vector<std::pair<std::uint32_t, Status>> reports;
    bool at_once;
    int culprit;
    std::string text;
  };
  const std::string path = "the path from rank 2 to rank 1 does not work";
  const std::string between =
      "; the connection between rank 1 (10.0.0.1 pid 101) and rank 2 "
      "(10.0.0.1 pid 102) ended, and neither of them has died (world "
      "ranks)";
  for (const Case& each : {
           // Ranks 1 and 2 have lost their connection. Ranks 3 and 0 lose connections because ranks
           // 1 and 2 then close theirs.
           Case{{{0, ended(3)}, {3, ended(1)}, {1, ended(2)}, {2, ended(1)}},
                true,
                2,
                "it ended" + between},
           // Rank 2 has closed the connection, and gives its reason later.
           Case{{{1, ended(2, "rank 2 closed its connection to rank 1")}, {2, ended(1, path)}},
                true,
                1,
                path + "; the connection between rank 2 (10.0.0.1 pid 102) and rank 1 (10.0.0.1 "
                       "pid 101) ended, and neither of them has died (world ranks)"},
           // Rank 2 computes, and has not noticed the end.
           Case{{{0, ended(3)}, {3, ended(1)}, {1, ended(2)}}, false, 2, "it ended" + between},
           // Rank 2 first sees the connection that rank 3 closed: the reports form a circle.
           Case{{{1, ended(2)}, {3, ended(1)}, {2, ended(3)}}, false, 2, "it ended" + between},
       }) {
    Verdicts root(roster_of(4), 1);
    std::vector<Verdict> told;
    for (const auto& [rank, why] : each.reports) {
      EXPECT_TRUE(told.empty());
      told = list(root.report(rank, scope_of(7), why, Time{}));
    }
    EXPECT_EQ(told.empty(), !each.at_once);
    EXPECT_TRUE(root.tick(Time(milliseconds(1999))).empty());
    const auto later = list(root.tick(Time(seconds(2))));
    told.insert(told.end(), later.begin(), later.end());
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].why.culprit(), each.culprit);
    EXPECT_EQ(told[0].why.message(), each.text);
  }
}

TEST(Verdicts, ADeathIsToldBesideTheConnectionsThatItEnded) {
  Verdicts root(roster_of(3), 1);
  EXPECT_TRUE(root.report(0, scope_of(7), ended(2), Time{}).empty());
  const auto news = list(root.died({2}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].scope, kEverything);
  EXPECT_EQ(news[0].why.culprit(), 2);
  EXPECT_EQ(news[0].why.message(), "rank 2 (10.0.0.1 pid 102) died or was cut off");
}

TEST(Verdicts, AFailureIsToldOnceAndNoRankDeclaresDeaths) {
  Verdicts root(roster_of(3), 1);
  const Status why(Code::kPara, "calls differ", 2);
  const auto news = list(root.report(0, scope_of(7), why, Time{}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].why.message(), "calls differ");
  EXPECT_EQ(news[0].why.culprit(), 2);
  EXPECT_TRUE(root.report(1, scope_of(7), {Code::kPara, "another", 1}, Time{}).empty());
  EXPECT_EQ(root.report(1, scope_of(8), why, Time{}).verdicts.size(), 1u);
  EXPECT_TRUE(root.report(2, kEverything, why, Time{}).empty());
}

// ---- roots that follow each other ----

Verdict verdict_of(const Uuid& scope, std::uint32_t epoch, int culprit) {
  return {scope, epoch, {Code::kRemote, "by root " + std::to_string(epoch), culprit}};
}

TEST(Verdicts, ANewRootDecidesNothingAnewThatWasHeard) {
  Verdicts root(roster_of(4), 2);
  EXPECT_EQ(root.heard(news_of({verdict_of(scope_of(1), 1, 3)})).verdicts.size(), 1u);
  EXPECT_TRUE(root.heard(news_of({verdict_of(scope_of(1), 1, 3)})).empty())
      << "from another adopter";
  EXPECT_TRUE(root.report(0, scope_of(1), {Code::kMemory, "no memory", 0}, Time{}).empty());
  const auto news = list(root.report(0, scope_of(2), {Code::kMemory, "no memory", 0}, Time{}));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].epoch, 2u);
  const auto known = list(root.known());
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].why.culprit(), 3);
}

TEST(Verdicts, OfTwoRootsTheEarlierOneCountsInWhateverOrder) {
  const std::vector<Verdict> two{verdict_of(scope_of(1), 1, 3), verdict_of(scope_of(1), 2, 0)};
  for (const int first : {0, 1}) {
    Verdicts root(roster_of(4), 3);
    static_cast<void>(root.heard(news_of({two[static_cast<std::size_t>(first)]})));
    static_cast<void>(root.heard(news_of({two[static_cast<std::size_t>(1 - first)]})));
    ASSERT_EQ(root.known().verdicts.size(), 1u);
    EXPECT_EQ(list(root.known())[0].why.culprit(), 3);
  }
}

TEST(Verdicts, ADeathThatWasHeardIsNotToldAgain) {
  Verdicts root(roster_of(4), 2);
  EXPECT_EQ(root.heard(news_of({verdict_of(kEverything, 1, 3), verdict_of(kEverything, 1, 2)}))
                .verdicts.size(),
            2u);
  EXPECT_TRUE(root.died({2, 3}).empty());
  EXPECT_EQ(root.died({1, 2}).verdicts.size(), 1u);
  // An ended connection to a dead rank is decided without a second report.
  EXPECT_EQ(root.report(0, scope_of(1), {Code::kRemote, "it ended", 3}, Time{}).verdicts.size(),
            1u);
}

// The root was stopped in the middle of a verdict, and another root has taken its place.
TEST(Verdicts, ALateRootTellsNothingUntilItKnowsThatItIsTheRoot) {
  Verdicts root(roster_of(4), 1);
  root.hold();
  EXPECT_TRUE(root.died({2}).empty());
  EXPECT_TRUE(root.report(0, scope_of(1), {Code::kMemory, "no memory", 0}, Time{}).empty());
  EXPECT_TRUE(root.report(1, scope_of(2), {Code::kMemory, "no memory", 1}, Time{}).empty());
  EXPECT_TRUE(root.known().empty());
  EXPECT_EQ(root.heard(news_of({verdict_of(scope_of(1), 2, 3)})).verdicts.size(), 1u);
  const auto news = list(root.release());
  ASSERT_EQ(news.size(), 2u) << "what nobody has decided meanwhile";
  EXPECT_EQ(news[0].why.culprit(), 2);
  EXPECT_EQ(news[1].scope, scope_of(2));
  EXPECT_TRUE(root.release().empty());
}

TEST(Verdicts, AGatheringThatWaitsForARankThatLeftIsVain) {
  Verdicts root(roster_of(4), 1);
  Gatherings::Open open;
  open.sum.arrived = {0};
  open.sum.members.add({0, {0, 2}});
  open.since = Time(seconds(1));
  root.left({2, 3}, Time{});
  EXPECT_FALSE(root.vain(open, Time(milliseconds(1400)))) << "its part may be on the way";
  const auto why = root.vain(open, Time(milliseconds(1500)));
  ASSERT_TRUE(why);
  EXPECT_EQ(why->culprit(), 2);
  EXPECT_EQ(why->code(), Code::kRemote);
  EXPECT_EQ(why->message(),
            "rank 2 (10.0.0.1 pid 102) has destroyed its communicator; rank 0 called for a group "
            "with rank 2 (world ranks)");
  root.ends(1, "barrier #4", Time{});
  Gatherings::Open within = open;
  within.sum.flags &= ~kMakesGroup;
  within.sum.members = {};
  within.sum.members.add({0, {0, 1}});
  EXPECT_EQ(root.vain(within, Time(milliseconds(1500)))->message(),
            "rank 1 (10.0.0.1 pid 101) has left: its program ended without HcclCommDestroy, after "
            "barrier #4; rank 0 opens connections in a group with rank 1 (world ranks)");
  open.sum.arrived = {0, 2};
  EXPECT_FALSE(root.vain(open, Time(seconds(9)))) << "it came before it left";
}

TEST(Verdicts, ForgetOldCommunicatorsRatherThanGrow) {
  Verdicts root(roster_of(2), 1);
  for (std::uint32_t i = 1; i < 3 * (kScopesCap + kRanksCap); ++i) {
    const Uuid scope{1, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8),
                     static_cast<std::uint8_t>(i >> 16)};
    ASSERT_EQ(root.report(0, scope, {Code::kMemory, "no memory", 0}, Time{}).verdicts.size(), 1u);
  }
  EXPECT_LE(root.known().verdicts.size(), kScopesCap + kRanksCap);
}

TEST(Wait, ComesBackFromItsBytesAndFromNoOthers) {
  ByteWriter out;
  put(out, wait_of(scope_of(3), 9, "allreduce", RankSet::range(2, 5), {7}));
  const std::string bytes = out.take();
  const auto read = [](std::string_view from, std::uint32_t size) {
    ByteReader in(from);
    return get_wait(in, size);
  };
  const auto back = read(bytes, 8);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->scope, scope_of(3));
  EXPECT_EQ(back->number, 9u);
  EXPECT_EQ(back->call, "allreduce");
  EXPECT_EQ(back->waiting, RankSet::range(2, 5));
  EXPECT_EQ(back->awaited, RankSet{7});
  EXPECT_FALSE(read(bytes, 7));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(read(std::string_view(bytes).substr(0, cut), 8));
  }
  ByteWriter nobody;
  put(nobody, wait_of(scope_of(3), 9, "allreduce", {}, {7}));
  EXPECT_FALSE(read(nobody.bytes(), 8));
}

}  // namespace
}  // namespace hccl::control
