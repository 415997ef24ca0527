// The root's verdicts: those of the coordinator on random events, those on merged reports, and
// those of roots that follow each other.
#include "hccl/control/verdicts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hccl/join/membership.h"

namespace hccl::control {
namespace {

using join::Membership;
using join::wire::Kind;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

Uuid scope_of(std::uint64_t number) { return {static_cast<std::uint8_t>(number)}; }

std::shared_ptr<const Roster> roster_of(std::uint32_t size) {
  Roster roster;
  roster.hosts.push_back({"here", "", {"10.0.0.1"}});
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    roster.nodes.push_back({0, 0, 100 + rank, 0, 0, {rank}});
    roster.node_of.push_back(rank);
  }
  return std::make_shared<const Roster>(std::move(roster));
}

Wait wait_of(const Uuid& scope, std::uint64_t number, const std::string& call, RankSet waiting,
             RankSet awaited) {
  Wait wait{scope, number, {}, call, std::move(waiting), std::move(awaited)};
  std::ranges::copy(call.substr(call.size() - std::min<std::size_t>(call.size(), 16)),
                    wait.digest.begin());
  return wait;
}

std::vector<Verdict> list(const News& news) {
  std::vector<Verdict> all;
  for (const auto& [key, verdict] : news.verdicts) all.push_back(verdict);
  return all;
}
News news_of(std::initializer_list<Verdict> verdicts) {
  News news;
  for (const Verdict& each : verdicts) news.merge(each);
  return news;
}

bool has(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

// ---- against the coordinator's membership ----

// Scope, code, culprit and text of each verdict; without the absent ranks, which are ranges here.
using Told = std::multiset<std::tuple<Uuid, Code, int, std::string>>;

void add(Told& told, const Uuid& scope, const Status& why) {
  const std::string text = why.message().substr(0, why.message().find("; these did not call"));
  told.emplace(scope, why.code(), why.culprit(), text);
}

// One world, in which both decide.
class Twins {
 public:
  explicit Twins(std::uint64_t seed)
      : random_(seed),
        size_(static_cast<std::uint32_t>(4 + random_() % 4)),
        membership_("nowhere", 1, hours(100), hours(100)),
        verdicts_(roster_of(size_), 1) {
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      ByteWriter out;
      out.put(Kind::kHello).put(join::wire::kVersion).put(size_).put_text("same");
      join::wire::put(out, {.rank = rank, .pid = 100 + rank, .host = "h", .address = "10.0.0.1"});
      static_cast<void>(membership_.frame(static_cast<int>(rank), out.bytes(), now_));
      here_.push_back(rank);
    }
  }

  // Everything that both have told after some events.
  std::pair<Told, Told> run() {
    for (int events = 0; events < 60; ++events) {
      now_ += milliseconds(random_() % 700);
      hear(membership_.tick(now_));
      hear(verdicts_.tick(now_));
      happen();
    }
    return {theirs_, ours_};
  }

 private:
  void hear(const Membership::Outs& outs) {
    std::set<std::pair<Uuid, std::string>> once;
    for (const auto& out : outs) {
      if (out.frame.empty()) continue;
      ByteReader in(out.frame.bytes());
      if (in.get<Kind>() != Kind::kFailure) continue;
      const auto scope = in.get<Uuid>();
      const Status why = join::wire::get_status(in);
      if (once.insert({scope, why.message()}).second) add(theirs_, scope, why);
    }
  }
  void hear(const News& news) {
    for (const auto& [key, each] : news.verdicts) add(ours_, each.scope, each.why);
  }
  void send(std::uint32_t rank, const ByteWriter& out) {
    hear(membership_.frame(static_cast<int>(rank), out.bytes(), now_));
  }

  void happen() {
    const std::uint32_t rank = here_[random_() % here_.size()];
    const Uuid scope = scope_of(1 + random_() % 6);
    const auto other = static_cast<std::uint32_t>(random_() % size_);
    switch (random_() % 16) {
      case 0:
        return go(rank, random_() % 2 == 0);
      case 1: {
        const std::string last = "allreduce #7";
        send(rank, ByteWriter().put(Kind::kEnd).put_text(last));
        return verdicts_.ends(rank, last, now_);
      }
      case 2:
      case 3:
        return refuse(rank, scope);
      case 4:
      case 5:
      case 6:
        return report(rank, scope, other);
      default:
        return wait(rank, scope, other);
    }
  }
  void go(std::uint32_t rank, bool dies) {
    if (here_.size() < 4) return;
    std::erase(here_, rank);
    if (dies) {
      hear(membership_.closed(static_cast<int>(rank)));
      hear(verdicts_.died({rank}));
    } else {
      send(rank, ByteWriter().put(Kind::kLeave));
      verdicts_.left({rank}, now_);
    }
  }
  void refuse(std::uint32_t rank, const Uuid& scope) {
    const std::uint64_t number = 1 + random_() % 2;
    const std::string text = random_() % 3 == 0 ? "" : "a count is negative";
    send(rank, ByteWriter().put(Kind::kRefusal).put(scope).put(number).put_text(text));
    const Refusal refusal = refusals_.refuse(rank, scope, number, text);
    EXPECT_TRUE(refusals_.heard(refusal, now_));
    verdicts_.refused(refusal, now_);
  }
  void report(std::uint32_t rank, const Uuid& scope, std::uint32_t other) {
    const std::string words = random_() % 2 == 0 ? " closed its connection to rank " : " is late";
    const Code codes[] = {Code::kRemote, Code::kRemote, Code::kRemote, Code::kTimeout,
                          Code::kMemory};
    const Status why(codes[random_() % 5], "rank " + std::to_string(other) + words,
                     static_cast<int>(other));
    ByteWriter out;
    out.put(Kind::kFailure).put(scope);
    join::wire::put(out, why);
    send(rank, out);
    hear(verdicts_.report(rank, scope, why, now_));
  }
  void wait(std::uint32_t rank, const Uuid& scope, std::uint32_t other) {
    const std::uint64_t number = 1 + random_() % 2;
    const std::string call = random_() % 20 == 0 ? "reduce" : "allreduce";
    const auto third = static_cast<std::uint32_t>(random_() % size_);
    ByteWriter out;
    out.put(Kind::kStall).put(scope).put(number).put_text(call);
    send(rank, out.put(std::uint32_t{2}).put(other).put(third));
    hear(verdicts_.waits(wait_of(scope, number, call, {rank}, {other, third}), now_));
  }

  std::mt19937_64 random_;
  std::uint32_t size_;
  Membership membership_;
  Verdicts verdicts_;
  Refusals refusals_;
  Time now_{};
  std::vector<std::uint32_t> here_;
  Told theirs_, ours_;
};

TEST(Verdicts, AreThoseOfTheCoordinator) {
  std::set<std::string> kinds;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const auto [theirs, ours] = Twins(seed).run();
    ASSERT_EQ(ours, theirs) << "seed " << seed;
    for (const auto& [scope, code, culprit, text] : ours) {
      for (const char* words : {"neither of them has died", "calls differ", "was refused",
                                "has destroyed", "program ended", " is in ", "died"}) {
        if (text.find(words) != std::string::npos) kinds.insert(words);
      }
    }
  }
  EXPECT_EQ(kinds.size(), 7u) << "every kind of verdict occurs";
}

// ---- merged reports ----

// Ranks of a large world wait for one that never comes, for a reason of its own; relays merge what
// they report, in another way in each round.
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
      both([&](Verdicts& all) { all.refused({scope_of(1), late, 1, 5, 1, "bad", {}}, now); });
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

// A rank that reports again must not be found where it waited before, nor those that it awaited.
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
  // An ended connection to a dead rank needs no second report.
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
