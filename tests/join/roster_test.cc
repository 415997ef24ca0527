// The coordinator's decisions, fed with frames by hand: what ranks are told, and that no bytes,
// however wrong, crash it or make it grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>

#include "hccl/join/membership.h"

namespace hccl::join {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Kind;

constexpr std::string_view kAgreement = "transport=auto";

Uuid scope_of(std::uint8_t number) {
  Uuid id{};
  id[0] = number;
  return id;
}

wire::Member member_of(std::uint32_t rank) {
  return {.rank = rank, .pid = 100 + rank, .cores = "\3", .host = "here", .address = "127.0.0.1"};
}

std::string hello(std::uint32_t rank, std::uint32_t size, std::string_view agreement = kAgreement,
                  std::uint32_t version = wire::kVersion) {
  ByteWriter out;
  out.put(Kind::kHello).put(version).put(size).put_text(agreement);
  wire::put(out, member_of(rank));
  return out.take();
}

std::string exchange(const Uuid& key, std::uint32_t size, std::uint32_t index,
                     std::chrono::nanoseconds patience, std::string_view part,
                     const std::vector<int>& members = {}, bool makes_group = true) {
  ByteWriter out;
  out.put(Kind::kExchange).put(key).put(size).put(index);
  out.put(static_cast<std::uint64_t>(patience.count()))
      .put_text(part)
      .put_text(wire::set_of(members))
      .put(static_cast<std::uint8_t>(makes_group));
  return out.take();
}

std::string failure(const Uuid& scope, const Status& why) {
  ByteWriter out;
  out.put(Kind::kFailure).put(scope);
  wire::put(out, why);
  return out.take();
}

std::string stall(const Uuid& scope, std::uint64_t sequence, std::string_view call,
                  const std::vector<std::uint32_t>& awaited) {
  ByteWriter out;
  out.put(Kind::kStall).put(scope).put(sequence).put_text(call);
  out.put(static_cast<std::uint32_t>(awaited.size()));
  for (const std::uint32_t rank : awaited) out.put(rank);
  return out.take();
}

std::string summons(const Uuid& scope) {
  return ByteWriter().put(Kind::kSummons).put(scope).take();
}

std::string refusal(const Uuid& scope, std::uint64_t sequence, std::string_view text) {
  return ByteWriter().put(Kind::kRefusal).put(scope).put(sequence).put_text(text).take();
}

// A membership with a clock that only the test moves.
class Timed {
 public:
  Timed(std::string host, std::uint32_t pid, std::chrono::nanoseconds patience)
      : membership_(std::move(host), pid, patience) {}
  Membership::Outs frame(int connection, std::string_view bytes) {
    return membership_.frame(connection, bytes, now_);
  }
  Membership::Outs closed(int connection) { return membership_.closed(connection); }
  Membership::Outs tick(std::chrono::nanoseconds later = {}) {
    now_ += later;
    return membership_.tick(now_);
  }
  bool complete() const { return membership_.complete(); }
  bool finished() const { return membership_.finished(); }
  std::size_t cap(int connection) const { return membership_.cap(connection); }

 private:
  Membership membership_;
  Membership::Time now_{};
};

// Connections are numbered 10 + rank.
Timed joined(std::uint32_t size) {
  Timed membership("here", 100, seconds(60));
  for (std::uint32_t r = 0; r < size; ++r) {
    static_cast<void>(membership.frame(static_cast<int>(10 + r), hello(r, size)));
  }
  EXPECT_TRUE(membership.complete());
  return membership;
}

std::vector<int> receivers(const Membership::Outs& outs) {
  std::vector<int> all;
  for (const auto& out : outs) all.push_back(out.connection);
  std::sort(all.begin(), all.end());
  return all;
}

// The status in a kRefused frame, or, after its scope, in a kFailure one.
Status status_in(std::string_view frame) {
  ByteReader in(frame);
  if (in.get<Kind>() == Kind::kFailure) static_cast<void>(in.get<Uuid>());
  return wire::get_status(in);
}

bool has(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

TEST(Membership, TellsTheTableWhenAllAreThere) {
  Timed membership("here", 101, seconds(60));
  EXPECT_TRUE(membership.frame(1, hello(2, 3)).empty());
  EXPECT_TRUE(membership.frame(2, hello(0, 3)).empty());
  EXPECT_FALSE(membership.complete());
  const auto outs = membership.frame(3, hello(1, 3));
  EXPECT_TRUE(membership.complete());
  EXPECT_EQ(receivers(outs), (std::vector<int>{1, 2, 3}));
  ByteReader in(outs[0].frame);
  EXPECT_EQ(in.get<Kind>(), Kind::kTable);
  EXPECT_EQ(in.get<std::uint32_t>(), 3u);
  EXPECT_EQ(in.get<std::uint32_t>(), 1u) << "pid 101 carries the coordinator";
  for (std::uint32_t r = 0; r < 3; ++r) EXPECT_EQ(wire::get_member(in).rank, r);
  EXPECT_TRUE(in.finished());
}

// One copy a rank would take N^2 memory in the coordinator's process.
TEST(Membership, AllRanksShareTheBytesOfAnAnswer) {
  Timed membership("here", 100, seconds(60));
  Membership::Outs outs;
  for (int r = 0; r < 3; ++r) outs = membership.frame(r, hello(static_cast<std::uint32_t>(r), 3));
  const auto expect_shared = [](const Membership::Outs& answers) {
    ASSERT_EQ(answers.size(), 3u);
    for (const auto& each : answers) {
      EXPECT_EQ(each.frame.bytes().data(), answers[0].frame.bytes().data());
    }
  };
  expect_shared(outs);
  for (std::uint32_t r = 0; r < 3; ++r) {
    outs = membership.frame(static_cast<int>(r), exchange(scope_of(1), 3, r, seconds(9), "part"));
  }
  expect_shared(outs);
}

Status ended(int other) { return {Code::kRemote, "it ended", other}; }
// Who is named to how many ranks.
std::pair<std::size_t, int> named(const Membership::Outs& outs) {
  return {outs.size(), outs.empty() ? -1 : status_in(outs.front().frame).culprit()};
}

// Ranks 1 and 2 have lost their connection; 3 and 0 see what they close then.
TEST(Membership, ReportsOfEndedConnectionsLeadToThePairThatNamesEachOther) {
  Timed membership = joined(4);
  EXPECT_TRUE(membership.frame(10, failure(scope_of(7), ended(3))).empty());
  EXPECT_TRUE(membership.frame(13, failure(scope_of(7), ended(1))).empty());
  EXPECT_TRUE(membership.frame(11, failure(scope_of(7), ended(2))).empty());
  const auto outs = membership.frame(12, failure(scope_of(7), ended(1)));
  EXPECT_EQ(named(outs), std::pair(std::size_t{4}, 2));
  const Status why = status_in(outs[0].frame);
  EXPECT_TRUE(has(why, "between rank 1 (") && has(why, "and rank 2 (")) << why.message();
  EXPECT_TRUE(membership.tick(seconds(5)).size() == 4) << "beats only";
}

// Rank 2 has closed the connection, and is slower to say why.
TEST(Membership, OfTwoRanksThatNameEachOtherTheOneThatClosedCounts) {
  Timed membership = joined(4);
  const auto closed =
      failure(scope_of(7), Status(Code::kRemote, "rank 2 closed its connection to rank 1", 2));
  const auto cause = failure(
      scope_of(7), Status(Code::kRemote, "the path from rank 2 to rank 1 does not work", 1));
  EXPECT_TRUE(membership.frame(11, closed).empty());
  const auto outs = membership.frame(12, cause);
  EXPECT_EQ(named(outs), std::pair(std::size_t{4}, 1));
  EXPECT_TRUE(has(status_in(outs[0].frame), "the path from rank 2"))
      << status_in(outs[0].frame).message();
}

// Rank 2 computes, and has seen nothing.
TEST(Membership, ReportsOfEndedConnectionsLeadToWhoReportedNothing) {
  Timed membership = joined(4);
  EXPECT_TRUE(membership.frame(10, failure(scope_of(7), ended(3))).empty());
  EXPECT_TRUE(membership.frame(13, failure(scope_of(7), ended(1))).empty());
  EXPECT_TRUE(membership.frame(11, failure(scope_of(7), ended(2))).empty());
  Membership::Outs outs;
  for (int i = 0; i < 21; ++i) {
    for (auto& each : membership.tick(milliseconds(100))) {
      if (ByteReader(each.frame).get<Kind>() == Kind::kFailure) outs.push_back(each);
    }
  }
  EXPECT_EQ(named(outs), std::pair(std::size_t{4}, 2));
}

// The same, but rank 2 has seen what rank 3 closed before it sees what ended: a circle.
TEST(Membership, ReportsOfEndedConnectionsInACircleLeadToTheFirst) {
  Timed membership = joined(4);
  EXPECT_TRUE(membership.frame(11, failure(scope_of(7), ended(2))).empty());
  EXPECT_TRUE(membership.frame(13, failure(scope_of(7), ended(1))).empty());
  EXPECT_TRUE(membership.frame(12, failure(scope_of(7), ended(3))).empty());
  Membership::Outs outs;
  for (int i = 0; i < 21; ++i) {
    for (auto& each : membership.tick(milliseconds(100))) {
      if (ByteReader(each.frame).get<Kind>() == Kind::kFailure) outs.push_back(each);
    }
  }
  ASSERT_EQ(named(outs), std::pair(std::size_t{4}, 2));
  const Status why = status_in(outs[0].frame);
  EXPECT_TRUE(has(why, "between rank 1 (") && has(why, "and rank 2 (")) << why.message();
}

// The death of rank 2 is what counts, on all others.
TEST(Membership, ADeathExplainsConnectionsThatEnded) {
  Timed membership = joined(3);
  EXPECT_TRUE(membership.frame(10, failure(scope_of(7), ended(2))).empty());
  const auto outs = membership.closed(12);
  EXPECT_EQ(named(outs), std::pair(std::size_t{2}, 2));
  EXPECT_TRUE(has(status_in(outs[0].frame), "died")) << status_in(outs[0].frame).message();
}

// The coordinator's thread does not run for longer than the peer timeout, then looks at the clock
// before it has read anything; then rank 1 alone stays silent.
TEST(Membership, TimeInWhichTheCoordinatorDidNotRunIsNobodysSilence) {
  Timed membership = joined(2);
  const auto failures = [](const Membership::Outs& outs) {
    return std::count_if(outs.begin(), outs.end(), [](const auto& each) {
      return ByteReader(each.frame).template get<Kind>() == Kind::kFailure;
    });
  };
  EXPECT_EQ(failures(membership.tick(seconds(100))), 0);
  std::ptrdiff_t told = 0;
  for (int i = 0; i < 310; ++i) {
    static_cast<void>(membership.frame(10, ByteWriter().put(Kind::kBeat).take()));
    told += failures(membership.tick(milliseconds(100)));
    EXPECT_TRUE(told == 0 || i >= 285) << i;
  }
  EXPECT_EQ(told, 2) << "rank 0 hears of it, and so does rank 1";
}

TEST(Membership, RanksThatLeftStayUntilTheRestHaveGone) {
  Timed membership = joined(3);
  static_cast<void>(membership.frame(10, ByteWriter().put(Kind::kLeave).take()));
  EXPECT_TRUE(membership.frame(10, ByteWriter().put(Kind::kBeat).take()).empty())
      << "a rank that waits for the others still beats";
  const auto outs = membership.closed(11);
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 12}));
  for (const auto& out : outs) {
    if (out.connection != 10) continue;
    EXPECT_EQ(out.frame.bytes(), ByteWriter().put(Kind::kLeave).put(std::uint32_t{1}).take())
        << "rank 0 must not wait for the dead";
  }
}

// Each rank that gets the list of awaited ranks logs it.
TEST(Membership, OneRankAHostHearsThatManyAreLate) {
  constexpr std::uint32_t kSize = 24;
  Timed membership("here", 100, seconds(60));
  for (std::uint32_t r = 0; r < kSize; ++r) {
    wire::Member member = member_of(r);
    member.host = r % 2 == 0 ? "here" : "there";
    ByteWriter out;
    out.put(Kind::kHello).put(wire::kVersion).put(kSize).put_text(kAgreement);
    wire::put(out, member);
    static_cast<void>(membership.frame(static_cast<int>(10 + r), out.take()));
  }
  ASSERT_TRUE(membership.complete());
  const auto come = [&](std::uint32_t r) {
    static_cast<void>(membership.frame(static_cast<int>(10 + r),
                                       exchange(scope_of(1), kSize, r, seconds(900), "part")));
  };
  const auto heard = [&](std::chrono::nanoseconds later) {
    std::vector<int> all;
    for (const auto& out : membership.tick(later)) {
      if (ByteReader(out.frame).get<Kind>() == Kind::kAwaited) all.push_back(out.connection);
    }
    return all;
  };
  for (std::uint32_t r = 4; r < 15; ++r) come(r);
  EXPECT_EQ(heard(seconds(2)), (std::vector<int>{14, 15})) << "13 are late";
  for (std::uint32_t r = 15; r < kSize; ++r) come(r);
  // All ranks beat, so that none of them is expelled.
  for (std::uint32_t r = 0; r < kSize; ++r) {
    static_cast<void>(
        membership.frame(static_cast<int>(10 + r), ByteWriter().put(Kind::kBeat).take()));
  }
  EXPECT_EQ(heard(seconds(29)), std::vector<int>());
  EXPECT_EQ(heard(seconds(1)).size(), 20u) << "4 are late";
}

TEST(Membership, AnswersNoExchangeOfADeadRank) {
  Timed membership = joined(3);
  for (const std::uint32_t rank : {0u, 1u}) {
    static_cast<void>(membership.frame(static_cast<int>(10 + rank),
                                       exchange(scope_of(1), 3, rank, seconds(5), "part")));
  }
  static_cast<void>(membership.closed(11));
  const auto outs = membership.tick(seconds(6));
  EXPECT_EQ(std::ranges::count(receivers(outs), 11), 0);
  EXPECT_GE(std::ranges::count(receivers(outs), 10), 1) << "who lives hears who is absent";
}

// A claim by a process of the root's host, which started at this time, in clock ticks.
std::string claim(std::uint32_t rank, std::uint32_t pid, std::uint64_t started,
                  const std::string& host = "here") {
  ByteWriter out;
  out.put(Kind::kHello).put(wire::kVersion).put(std::uint32_t{3}).put_text(kAgreement);
  wire::put(out, {.rank = rank, .pid = pid, .host = host, .address = "a", .started = started});
  return out.take();
}

constexpr std::uint64_t kRootStarted = 50000;

// A world of three, whose rank 0 has come. `others`: processes that have not come yet.
// `remembered`: counts the contests.
Membership contested(std::vector<wire::Member> others = {}, int* remembered = nullptr) {
  Membership membership("here", 100, seconds(60), seconds(30), kRootStarted,
                        {.find = [others](const auto&...) { return others; },
                         .remember =
                             [remembered] {
                               if (remembered != nullptr) ++*remembered;
                             }});
  EXPECT_TRUE(membership.frame(1, claim(0, 100, kRootStarted), {}).empty());
  return membership;
}

void expect_both_named(const Membership::Outs& outs, const std::vector<int>& to, int first,
                       int second) {
  EXPECT_EQ(receivers(outs), to);
  for (const auto& out : outs) {
    EXPECT_TRUE(out.close);
    const Status why = status_in(out.frame);
    EXPECT_EQ(why.code(), Code::kPara);
    for (const std::string& words :
         {"pid " + std::to_string(first), "pid " + std::to_string(second),
          std::string("set HCCL_JOB_ID")}) {
      EXPECT_TRUE(has(why, words)) << why.message();
    }
  }
}

TEST(Membership, TwoClaimsOfOneRankEndTheWorldAndNameBoth) {
  // A second later is not provably another attempt. Start times of other hosts do not compare.
  for (const std::string& second : {claim(1, 7, kRootStarted + 90), claim(1, 7, 0),
                                    claim(1, 7, kRootStarted - 9000, "there")}) {
    int remembered = 0;
    Membership membership = contested({}, &remembered);
    EXPECT_TRUE(membership.frame(2, claim(1, 6, kRootStarted + 20), {}).empty());
    EXPECT_EQ(remembered, 0);
    expect_both_named(membership.frame(3, second, {}), {1, 2, 3}, 6, 7);
    EXPECT_FALSE(membership.complete());
    EXPECT_EQ(remembered, 1);
    // The ranks of either job that come later get the reason.
    expect_both_named(membership.frame(4, claim(2, 8, kRootStarted), {}), {4}, 6, 7);
  }
}

TEST(Membership, AProcessLeftOverIsRefusedAlone) {
  for (const bool first : {true, false}) {
    Membership membership = contested();
    const std::string old = claim(1, 6, kRootStarted - 9000);
    const std::string young = claim(1, 7, kRootStarted + 10);
    EXPECT_TRUE(membership.frame(2, first ? old : young, {}).empty());
    expect_both_named(membership.frame(3, first ? young : old, {}), {first ? 2 : 3}, 6, 7);
    EXPECT_EQ(membership.frame(4, claim(2, 8, kRootStarted), {}).size(), 3u);
    EXPECT_TRUE(membership.complete());
  }
}

// A claim of one of torchelastic's ranks.
std::string elastic(std::uint32_t rank, std::uint32_t pid, wire::Attempt attempt,
                    const std::string& host = "there") {
  ByteWriter out;
  out.put(Kind::kHello).put(wire::kVersion).put(std::uint32_t{3}).put_text(kAgreement);
  wire::put(out, {.rank = rank, .pid = pid, .host = host, .address = "a", .attempt = attempt});
  return out.take();
}

// Ranks 1 and 2 belong to an agent of another host, which has restarted them.
TEST(Membership, ARankOfAnEarlierAttemptOfItsAgentIsRefusedAlone) {
  for (const std::uint32_t place : {1u, 2u}) {  // that of the old process
    const std::string old = elastic(place, 6, {2, 0});
    for (const bool first : {true, false}) {
      Membership membership = contested();
      EXPECT_TRUE(membership.frame(2, first ? old : elastic(1, 7, {2, 1}), {}).empty());
      const auto outs = membership.frame(3, first ? elastic(1, 7, {2, 1}) : old, {});
      ASSERT_EQ(receivers(outs), std::vector<int>{first ? 2 : 3});
      EXPECT_TRUE(outs[0].close);
      const Status why = status_in(outs[0].frame);
      EXPECT_TRUE(has(why, "left over") && has(why, "pid 6,") && has(why, "pid 7,"))
          << why.message();
      EXPECT_EQ(membership.frame(4, elastic(2, 8, {2, 1}), {}).size(), 3u);
      EXPECT_TRUE(membership.complete());
    }
  }
}

// Agents count apart, and so do processes without an agent.
TEST(Membership, OnlyRanksOfOneAgentCompareTheirAttempts) {
  for (const auto& [one, other] : {std::pair{elastic(1, 6, {2, 0}), elastic(2, 7, {3, 1})},
                                   std::pair{elastic(1, 6, {2, 0}), elastic(2, 7, {2, 1}, "far")},
                                   std::pair{elastic(1, 6, {0, 0}), elastic(2, 7, {0, 1})}}) {
    Membership membership = contested();
    EXPECT_TRUE(membership.frame(2, one, {}).empty());
    EXPECT_EQ(membership.frame(3, other, {}).size(), 3u);
    EXPECT_TRUE(membership.complete());
  }
}

// A process that has not come yet is of the attempt of the rank that has, or of an earlier one.
TEST(Membership, AClaimantOfAnEarlierAttemptIsNotHeeded) {
  for (const std::uint32_t number : {1u, 2u}) {
    Membership membership = contested({{.rank = 1, .pid = 6, .host = "here", .attempt = {2, 1}}});
    EXPECT_TRUE(membership.frame(2, elastic(1, 7, {2, number}, "here"), {}).empty());
    static_cast<void>(membership.frame(3, elastic(2, 8, {2, number}, "here"), {}));
    EXPECT_EQ(membership.complete(), number == 2);
  }
}

// The root is of an earlier attempt: no rank can go on.
TEST(Membership, ARootOfAnEarlierAttemptEndsTheWorld) {
  Membership membership("here", 100, seconds(60));
  EXPECT_TRUE(membership.frame(1, elastic(0, 100, {1, 0}, "here"), {}).empty());
  EXPECT_EQ(receivers(membership.frame(2, elastic(1, 7, {1, 1}, "here"), {})),
            (std::vector<int>{1, 2}));
  EXPECT_EQ(receivers(membership.frame(3, elastic(2, 8, {1, 1}, "here"), {})), std::vector<int>{3});
}

TEST(Membership, OnlyAContestIsRemembered) {
  int remembered = 0;
  Membership membership = contested({}, &remembered);
  EXPECT_EQ(membership.frame(2, hello(1, 4), {}).size(), 2u) << "another size: both are refused";
  Membership other = contested({}, &remembered);
  EXPECT_EQ(other.frame(2, claim(1, 6, kRootStarted - 9000), {}).size(), 0u);
  EXPECT_EQ(other.frame(3, claim(1, 7, kRootStarted), {}).size(), 1u) << "one is left over";
  EXPECT_EQ(remembered, 0);
}

TEST(Membership, ASecondRootEndsTheWorld) {
  Membership membership = contested();
  EXPECT_TRUE(membership.frame(2, claim(1, 6, kRootStarted), {}).empty());
  expect_both_named(membership.frame(3, claim(0, 101, kRootStarted + 9000), {}), {1, 2, 3}, 100,
                    101);
}

// The last rank comes, and another process will claim rank 1.
TEST(Membership, AProcessThatHasNotComeYetIsHeeded) {
  const auto end = [](std::uint64_t rank_started, std::uint64_t other_started) {
    Membership membership = contested(
        {{.rank = 1, .pid = 7, .host = "here", .address = "b", .started = other_started}});
    EXPECT_TRUE(membership.frame(2, claim(1, 6, rank_started), {}).empty());
    auto outs = membership.frame(3, claim(2, 8, kRootStarted), {});
    return std::pair(membership.complete(), std::move(outs));
  };
  const auto both = end(kRootStarted, kRootStarted + 30);
  EXPECT_FALSE(both.first);
  expect_both_named(both.second, {1, 2, 3}, 6, 7);
  EXPECT_TRUE(end(kRootStarted, kRootStarted - 9000).first) << "the other process is left over";
  // The rank is left over: it goes, and the other process may take its place.
  const auto [complete, outs] = end(kRootStarted - 9000, kRootStarted + 30);
  EXPECT_FALSE(complete);
  expect_both_named(outs, {2}, 6, 7);
}

TEST(Membership, RefusesOnlyTheImpossibleRank) {
  Timed membership("here", 100, seconds(60));
  EXPECT_TRUE(membership.frame(1, hello(0, 2)).empty());
  for (const auto& [frame, words] :
       {std::pair{hello(2, 2), "impossible"}, std::pair{hello(0, 0), "impossible"},
        std::pair{hello(0, wire::kRanksCap + 1), "impossible"}}) {
    const auto outs = membership.frame(2, frame);
    ASSERT_EQ(receivers(outs), std::vector<int>{2});
    EXPECT_TRUE(outs[0].close);
    EXPECT_EQ(status_in(outs[0].frame).code(), Code::kPara);
    EXPECT_TRUE(has(status_in(outs[0].frame), words)) << status_in(outs[0].frame).message();
  }
  EXPECT_EQ(membership.frame(3, hello(1, 2)).size(), 2u) << "the world came about all the same";
  EXPECT_TRUE(membership.complete());
  const auto late = membership.frame(4, hello(1, 2));
  ASSERT_EQ(receivers(late), std::vector<int>{4});
  EXPECT_EQ(status_in(late[0].frame).code(), Code::kUnavail);
}

TEST(Membership, PassesASummonsOnToTheOthers) {
  Timed membership("here", 100, seconds(60));
  for (std::uint32_t r = 0; r < 3; ++r) {
    static_cast<void>(membership.frame(static_cast<int>(r) + 1, hello(r, 3)));
  }
  const auto outs = membership.frame(2, summons(scope_of(7)));
  EXPECT_EQ(receivers(outs), (std::vector<int>{1, 3}));
  for (const auto& out : outs) EXPECT_EQ(out.frame.bytes(), summons(scope_of(7)));
}

// Rank 1 has left a group. Rank 0 opens connections in it, and rank 2 will.
TEST(Membership, ARankThatSaysItHasLeftEndsTheExchange) {
  Timed membership = joined(3);
  const auto part = [](std::uint32_t rank) {
    return exchange(scope_of(7), 3, rank, seconds(60), "part", {0, 1, 2}, false);
  };
  for (const std::uint32_t rank : {1u, 0u}) {
    EXPECT_TRUE(membership.frame(static_cast<int>(10 + rank), part(rank)).empty());
  }
  const Status gone(Code::kRemote, "rank 1 has gone", 1);
  auto outs = membership.frame(11, failure(scope_of(7), gone));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 11, 12}));
  EXPECT_EQ(status_in(outs[0].frame).message(), gone.message()) << "no word of connections";
  EXPECT_TRUE(membership.frame(10, failure(scope_of(7), gone)).empty()) << "it is known";
  outs = membership.frame(12, part(2));
  EXPECT_EQ(receivers(outs), std::vector<int>{12});
  EXPECT_EQ(named(outs), std::pair(std::size_t{1}, 1));
}

TEST(Membership, TellsLateComersWhyItGaveUp) {
  Timed membership("here", 100, seconds(60));
  EXPECT_TRUE(membership.frame(1, hello(0, 3)).empty());
  EXPECT_EQ(membership.frame(2, hello(1, 3, "transport=tcp")).size(), 2u);
  EXPECT_FALSE(membership.finished()) << "rank 2 knows nothing yet";
  const auto late = membership.frame(3, hello(2, 3));
  ASSERT_EQ(receivers(late), std::vector<int>{3});
  EXPECT_TRUE(has(status_in(late[0].frame), "transport=tcp")) << "the reason of the others";
  EXPECT_TRUE(membership.finished());

  Timed hasty("here", 100, milliseconds(5));
  EXPECT_EQ(hasty.frame(1, hello(0, 3, kAgreement, 9)).size(), 1u);
  EXPECT_FALSE(hasty.finished());
  EXPECT_TRUE(hasty.tick(milliseconds(10)).empty());
  EXPECT_TRUE(hasty.finished()) << "not for ever";
}

TEST(Membership, GathersInOrderOfIndexAndNamesTheAbsent) {
  Timed membership = joined(3);
  const Uuid key = scope_of(1);
  EXPECT_TRUE(membership.frame(12, exchange(key, 2, 1, seconds(9), "two")).empty());
  const auto outs = membership.frame(10, exchange(key, 2, 0, seconds(9), "one"));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 12}));
  ByteReader in(outs[0].frame);
  EXPECT_EQ(in.get<Kind>(), Kind::kExchange);
  EXPECT_EQ(in.get<Uuid>(), key);
  EXPECT_EQ(in.get<std::uint32_t>(), 0u);
  EXPECT_EQ(in.get<std::uint32_t>(), 2u);
  EXPECT_EQ(in.get_text(9), "one");
  EXPECT_EQ(in.get_text(9), "two");

  EXPECT_TRUE(membership.frame(11, exchange(key, 3, 1, milliseconds(1), "x")).empty());
  const auto late = membership.tick(milliseconds(5));
  ASSERT_EQ(receivers(late), std::vector<int>{11});
  ByteReader absent(late[0].frame);
  static_cast<void>(absent.get<Kind>());
  static_cast<void>(absent.get<Uuid>());
  EXPECT_EQ(absent.get<std::uint32_t>(), 2u);
  EXPECT_EQ(absent.get<std::uint32_t>(), 0u);
  EXPECT_EQ(absent.get<std::uint32_t>(), 2u);
}

TEST(Membership, DropsRanksWithImpossibleExchanges) {
  const Uuid key = scope_of(1);
  for (const std::string& frame :
       {exchange(key, 0, 0, seconds(1), ""), exchange(key, 4, 0, seconds(1), ""),
        exchange(key, 3, 3, seconds(1), ""), exchange(key, 3, 0, seconds(1), "") + "x"}) {
    Timed membership = joined(3);
    const auto outs = membership.frame(11, frame);
    EXPECT_EQ(receivers(outs), (std::vector<int>{10, 11, 12})) << "one is cut off, two hear of it";
    for (const auto& out : outs) EXPECT_EQ(out.close, out.connection == 11);
  }
  Timed twice = joined(3);
  EXPECT_TRUE(twice.frame(11, exchange(key, 3, 1, seconds(1), "")).empty());
  EXPECT_EQ(twice.frame(12, exchange(key, 3, 1, seconds(1), "")).size(), 3u);
}

TEST(Membership, TellsOfADeathAndOfALeave) {
  Timed membership = joined(3);
  const auto left = membership.frame(12, ByteWriter().put(Kind::kLeave).take());
  EXPECT_EQ(receivers(left), (std::vector<int>{10, 11, 12}));
  EXPECT_TRUE(membership.closed(12).empty()) << "a rank that has left does not die";
  const auto died = membership.closed(11);
  ASSERT_EQ(receivers(died), std::vector<int>{10});
  const Status why = status_in(died[0].frame);
  EXPECT_EQ(why.code(), Code::kRemote);
  EXPECT_EQ(why.culprit(), 1);
  EXPECT_TRUE(has(why, "rank 1 (127.0.0.1 pid 101) died")) << why.message();
  EXPECT_FALSE(membership.finished());
  EXPECT_TRUE(membership.closed(10).empty());
  EXPECT_TRUE(membership.finished());
}

// The coordinator's process, which is rank 0's, may end as soon as it has heard.
TEST(Membership, TheCoordinatorsOwnRankHearsLast) {
  Timed membership = joined(4);
  const auto order = [](const Membership::Outs& outs) {
    std::vector<int> all;
    for (const auto& out : outs) all.push_back(out.connection);
    return all;
  };
  Membership::Outs answers;
  for (std::uint32_t r = 0; r < 4; ++r) {
    answers = membership.frame(static_cast<int>(10 + r),
                               exchange(scope_of(8), 4, r, seconds(9), "a reason"));
  }
  EXPECT_EQ(order(answers), (std::vector<int>{11, 12, 13, 10}));
  const Status why(Code::kPara, "calls differ");
  EXPECT_EQ(order(membership.frame(12, failure(scope_of(7), why))), (std::vector<int>{11, 13, 10}));
  EXPECT_EQ(order(membership.closed(12)), (std::vector<int>{11, 13, 10}));
  Timed opening("here", 100, seconds(60));
  EXPECT_TRUE(opening.frame(1, hello(0, 3)).empty());
  EXPECT_TRUE(opening.frame(2, hello(1, 3)).empty());
  EXPECT_EQ(order(opening.tick(seconds(60))), (std::vector<int>{2, 1}));
  Timed complete("here", 100, seconds(60));
  EXPECT_TRUE(complete.frame(1, hello(0, 2)).empty());
  EXPECT_EQ(order(complete.frame(2, hello(1, 2))), (std::vector<int>{2, 1}));
}

TEST(Membership, ARankThatHasLeftHearsOfThoseThatLeaveLater) {
  Timed membership = joined(3);
  const std::string leave = ByteWriter().put(Kind::kLeave).take();
  static_cast<void>(membership.frame(12, leave));
  EXPECT_EQ(receivers(membership.frame(10, leave)), (std::vector<int>{10, 11, 12}));
  EXPECT_TRUE(membership.closed(12).empty());
  EXPECT_EQ(receivers(membership.frame(11, leave)), (std::vector<int>{10, 11}));
  EXPECT_TRUE(membership.finished());
}

TEST(Membership, NothingButAHelloCountsBeforeTheTable) {
  for (const std::string& frame :
       {ByteWriter().put(Kind::kLeave).take(), exchange(scope_of(1), 2, 0, seconds(1), "x"),
        stall(scope_of(1), 1, "x", {}), failure(scope_of(1), Status(Code::kPara, "x"))}) {
    Timed membership("here", 100, seconds(60));
    EXPECT_TRUE(membership.frame(1, hello(0, 2)).empty());
    const auto outs = membership.frame(1, frame);
    ASSERT_EQ(receivers(outs), std::vector<int>{1});
    EXPECT_TRUE(outs[0].close);
    EXPECT_TRUE(membership.frame(2, hello(0, 2)).empty()) << "its place is free again";
    EXPECT_EQ(membership.frame(3, hello(1, 2)).size(), 2u);
  }
}

TEST(Membership, TellsAFailureOnceToTheOthers) {
  Timed membership = joined(3);
  const Status why(Code::kPara, "calls differ", 2);
  const auto first = membership.frame(10, failure(scope_of(7), why));
  EXPECT_EQ(receivers(first), (std::vector<int>{11, 12}));
  EXPECT_EQ(status_in(first[0].frame).message(), "calls differ");
  EXPECT_EQ(status_in(first[0].frame).culprit(), 2);
  EXPECT_TRUE(membership.frame(11, failure(scope_of(7), why)).empty());
  EXPECT_EQ(membership.frame(11, failure(scope_of(8), why)).size(), 2u) << "another communicator";
  EXPECT_TRUE(membership.frame(12, failure(Uuid{}, why)).back().close)
      << "nobody may declare deaths";
}

TEST(Membership, ComparesTheCallsOfStalledRanks) {
  Timed membership = joined(3);
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 5, "allreduce #5 (count 5)", {1})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 5, "allreduce #5 (count 5)", {2})).empty());
  EXPECT_TRUE(membership.frame(12, stall(scope_of(1), 4, "broadcast #4", {2})).empty());
  EXPECT_TRUE(membership.frame(12, stall(scope_of(2), 5, "broadcast #5", {2})).empty());
  const auto outs = membership.frame(12, stall(scope_of(1), 5, "allreduce #5 (count 7)", {}));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 11, 12}));
  const Status why = status_in(outs[0].frame);
  EXPECT_EQ(why.code(), Code::kPara);
  EXPECT_TRUE(has(why, "count 5") && has(why, "count 7") && has(why, "rank 2")) << why.message();
}

TEST(Membership, NamesTheRankThatDidNotCallAtATimeout) {
  Timed membership = joined(4);
  // 3 waits for 2, 0 for 3 (which waits itself), 1 for nobody.
  EXPECT_TRUE(membership.frame(13, stall(scope_of(1), 5, "allreduce #5", {2})).empty());
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 5, "allreduce #5", {3})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 5, "allreduce #5", {})).empty());
  const auto outs = membership.frame(10, failure(scope_of(1), Status(Code::kTimeout, "no end")));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 11, 12, 13}))
      << "the rank that asks is told, too";
  const Status why = status_in(outs[0].frame);
  EXPECT_EQ(why.code(), Code::kTimeout);
  EXPECT_EQ(why.culprit(), 2);
  EXPECT_TRUE(has(why, "did not call it (world ranks): 2")) << why.message();
  EXPECT_TRUE(membership.frame(11, failure(scope_of(1), Status(Code::kTimeout, "no end"))).empty());
}

// Only the last report of a rank counts, also for the ranks that it awaits.
TEST(Membership, ARankThatWaitsOnIsForgottenWhereItWaitedBefore) {
  Timed membership = joined(5);
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 5, "allreduce #5", {4, 4})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 5, "allreduce #5", {3})).empty());
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 6, "reduce #6", {4})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 5, "allreduce #5", {2})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 5, "another #5", {2})).empty())
      << "no other rank waits there";
  EXPECT_FALSE(membership.frame(10, stall(scope_of(1), 5, "allreduce #5", {2})).empty());
  EXPECT_TRUE(membership.frame(10, stall(scope_of(2), 5, "allreduce #5", {4})).empty());
  EXPECT_TRUE(membership.frame(10, stall(scope_of(2), 6, "reduce #6", {4})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(2), 5, "allreduce #5", {2})).empty());
  const auto outs = membership.frame(11, failure(scope_of(2), Status(Code::kTimeout, "no end")));
  ASSERT_EQ(outs.size(), 5u);
  EXPECT_EQ(status_in(outs[0].frame).message(), "no end; these did not call it (world ranks): 2");
}

// Data is lost on its way: ranks 1 and 2 wait in other operations than rank 0. Rank 3 has waited in
// an earlier one, long ago.
TEST(Membership, ARankThatWaitsElsewhereIsNotSaidToHaveNotCalled) {
  Timed membership = joined(4);
  EXPECT_TRUE(membership.frame(13, stall(scope_of(1), 3, "broadcast #3", {0})).empty());
  EXPECT_TRUE(membership.frame(11, stall(scope_of(1), 6, "reduce #6", {0})).empty());
  static_cast<void>(membership.tick(seconds(10)));
  EXPECT_TRUE(membership.frame(12, stall(scope_of(1), 4, "allgather #4", {0})).empty());
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 5, "broadcast #5", {1, 2, 3})).empty());
  const auto outs = membership.frame(10, failure(scope_of(1), Status(Code::kTimeout, "no end")));
  ASSERT_EQ(outs.size(), 4u);
  const Status why = status_in(outs[0].frame);
  EXPECT_EQ(why.message(),
            "no end; rank 1 is in reduce #6; rank 2 is in allgather #4; these did not call it "
            "(world ranks): 3");
  EXPECT_EQ(why.culprit(), 3);
}

TEST(Membership, StaleStallReportsDoNotBlindIt) {
  Timed membership = joined(2);
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    Uuid scope{};
    std::memcpy(scope.data(), &i, sizeof i);
    scope[15] = 1;
    EXPECT_TRUE(membership.frame(10, stall(scope, 1, "allreduce", {1})).empty());
  }
  EXPECT_TRUE(membership.frame(10, stall(scope_of(1), 1, "allreduce", {1})).empty());
  EXPECT_EQ(membership.frame(11, stall(scope_of(1), 1, "broadcast", {0})).size(), 2u);
}

TEST(Membership, CapsGrowOnlyWithAdmission) {
  Timed membership("here", 100, seconds(60));
  EXPECT_EQ(membership.cap(1), wire::kHelloCap);
  EXPECT_TRUE(membership.frame(1, hello(0, 2)).empty());
  EXPECT_EQ(membership.cap(1), wire::kFrameCap);
  EXPECT_EQ(membership.cap(2), wire::kHelloCap);
  const auto long_blob = membership.frame(
      1, exchange(scope_of(1), 2, 0, seconds(1), std::string(wire::kBlobCap + 1, 'x')));
  EXPECT_TRUE(long_blob.back().close);
}

// Rank 1 has refused what rank 0 waits in: all are told if rank 0 says so again half a second
// later. Not if rank 0 has refused as much, if rank 1 waits there by now, or if it was another
// operation.
TEST(Membership, ARefusedCallIsToldToThoseThatWaitForIt) {
  const Uuid scope = scope_of(1);
  const auto world = [] {
    Timed membership("here", 100, seconds(60));
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      static_cast<void>(membership.frame(static_cast<int>(rank), hello(rank, 3)));
    }
    return membership;
  };
  const std::string waits = stall(scope, 5, "allreduce #5", {1});
  // Rank 0 says again what it waits in.
  const auto waits_on = [&](Timed& membership) {
    static_cast<void>(membership.tick(milliseconds(400)));
    return membership.frame(0, waits);
  };
  Timed told = world();
  EXPECT_TRUE(told.frame(0, waits).empty());
  EXPECT_TRUE(told.frame(1, refusal(scope, 5, "HcclReduce: root is 9")).empty());
  EXPECT_TRUE(waits_on(told).empty()) << "rank 1 may have made the right call";
  const auto outs = waits_on(told);
  ASSERT_EQ(outs.size(), 3U);
  for (const auto& out : outs) {
    for (const char* const words : {"rank 0 called allreduce #5", "rank 1", "root is 9"}) {
      EXPECT_NE(out.frame.bytes().find(words), std::string::npos) << words;
    }
  }
  Timed left = world();  // no text: it has destroyed the communicator
  static_cast<void>(left.frame(1, refusal(scope, 5, "")));
  EXPECT_TRUE(waits_on(left).empty());
  const auto heard = waits_on(left);
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_NE(
      heard[0].frame.bytes().find("has destroyed its communicator; rank 0 called allreduce #5"),
      std::string::npos);
  Timed alike = world();
  static_cast<void>(alike.frame(0, refusal(scope, 5, "why")));
  static_cast<void>(alike.frame(1, refusal(scope, 5, "why")));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(waits_on(alike).empty());
  static_cast<void>(alike.frame(1, refusal(scope, 5, "why")));
  EXPECT_TRUE(waits_on(alike).empty());
  EXPECT_FALSE(waits_on(alike).empty());
  Timed came = world();
  static_cast<void>(came.frame(1, refusal(scope, 5, "why")));
  EXPECT_TRUE(waits_on(came).empty());
  static_cast<void>(came.frame(1, stall(scope, 5, "allreduce #5", {2})));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(waits_on(came).empty());
  Timed other = world();
  static_cast<void>(other.frame(1, refusal(scope, 4, "why")));
  static_cast<void>(other.frame(1, refusal(scope_of(2), 5, "why")));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(waits_on(other).empty());
}

void expect_no_failure(Timed& membership) {
  for (const auto& out : membership.tick(seconds(1))) {
    EXPECT_NE(static_cast<Kind>(out.frame.bytes()[0]), Kind::kFailure) << out.frame.bytes();
  }
}

// Making groups has no order: of all groups that wait for a rank that refused to make one, it is
// said; half a second later, as it may make the right call.
TEST(Membership, ARankThatRefusesToMakeAGroupEndsTheWaitForIt) {
  const Uuid none{}, key = scope_of(1);
  const auto comes = [&](std::uint32_t index, std::uint8_t group, const std::vector<int>& members) {
    return exchange(scope_of(group), static_cast<std::uint32_t>(members.size()), index, seconds(60),
                    "part", members);
  };
  Timed told = joined(3);
  EXPECT_TRUE(told.frame(10, comes(0, 1, {0, 1})).empty());
  EXPECT_TRUE(told.frame(12, comes(1, 2, {0, 2})).empty());  // does not wait for rank 1
  EXPECT_TRUE(told.frame(11, refusal(none, 0, "rankIds is null")).empty());
  EXPECT_TRUE(told.tick(milliseconds(400)).empty());
  const auto outs = told.tick(milliseconds(200));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 11, 12}));
  for (const auto& out : outs) {
    ByteReader in(out.frame);
    EXPECT_EQ(in.get<Kind>(), Kind::kFailure);
    EXPECT_EQ(in.get<Uuid>(), key);
    const Status why = status_in(out.frame);
    EXPECT_EQ(why.code(), Code::kPara);
    EXPECT_EQ(why.culprit(), 1);
    EXPECT_TRUE(has(why, "rank 0 called for a group with rank 1") &&
                has(why, "rank 1 was refused: rankIds is null"))
        << why.message();
  }
  // Once.
  static_cast<void>(told.frame(10, comes(0, 3, {0, 1})));
  expect_no_failure(told);
  // Who comes too late hears it, too.
  const auto late = told.frame(11, comes(1, 1, {0, 1}));
  ASSERT_EQ(receivers(late), std::vector<int>{11});
  EXPECT_TRUE(has(status_in(late[0].frame), "rankIds is null"));
}

TEST(Membership, ARankThatMakesAGroupAfterAllIsForgiven) {
  const auto comes = [](std::uint32_t index, std::uint8_t group, const std::vector<int>& members) {
    return exchange(scope_of(group), static_cast<std::uint32_t>(members.size()), index,
                    seconds(3600), "part", members);
  };
  const std::string refuses = refusal(Uuid{}, 0, "why");
  Timed membership = joined(3);
  static_cast<void>(membership.frame(11, refuses));
  static_cast<void>(membership.frame(10, comes(0, 1, {0, 1})));
  EXPECT_EQ(membership.frame(11, comes(1, 1, {0, 1})).size(), 2u);
  // From here on the two are even, and rank 2 is not.
  static_cast<void>(membership.frame(10, comes(0, 2, {0, 1})));
  expect_no_failure(membership);
  static_cast<void>(membership.frame(11, comes(1, 2, {0, 1})));
  static_cast<void>(membership.frame(12, refuses));
  static_cast<void>(membership.frame(12, comes(1, 3, {1, 2})));
  expect_no_failure(membership);  // rank 2 has refused as often as rank 1, for which it waits
  static_cast<void>(membership.frame(11, refuses));
  EXPECT_FALSE(membership.tick(seconds(1)).empty());
  // All make the same wrong call.
  Timed alike = joined(3);
  for (const int each : {10, 11, 12}) static_cast<void>(alike.frame(each, refuses));
  static_cast<void>(alike.frame(10, comes(0, 1, {0, 1})));
  expect_no_failure(alike);
}

// Who waits for a rank that has left in good order waits in vain, and hears so: but not before it
// has waited on, as what that rank sent before may still be on its way.
TEST(Membership, ARankThatHasLeftIsNamedToThoseThatWaitForIt) {
  const Uuid scope = scope_of(1);
  Timed membership("here", 100, seconds(60));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    static_cast<void>(membership.frame(static_cast<int>(rank), hello(rank, 3)));
  }
  const std::string waits = stall(scope, 5, "allreduce #5", {1, 2});
  EXPECT_TRUE(membership.frame(0, waits).empty());
  static_cast<void>(membership.frame(2, ByteWriter().put(Kind::kLeave).take()));
  static_cast<void>(membership.tick(milliseconds(500)));
  EXPECT_TRUE(membership.frame(0, waits).empty());
  EXPECT_TRUE(membership.frame(0, stall(scope, 6, "allreduce #6", {1})).empty());  // it came
  static_cast<void>(membership.tick(milliseconds(500)));
  EXPECT_TRUE(membership.frame(0, waits).empty());
  static_cast<void>(membership.tick(milliseconds(500)));
  const auto outs = membership.frame(0, waits);
  ASSERT_EQ(outs.size(), 2U);  // the ranks that are still here
  for (const auto& out : outs) {
    EXPECT_NE(out.frame.bytes().find("rank 2"), std::string::npos) << out.frame.bytes();
    EXPECT_NE(out.frame.bytes().find("has destroyed its communicator"), std::string::npos);
    EXPECT_NE(out.frame.bytes().find("rank 0 called allreduce #5"), std::string::npos);
  }
  // A program that ends may still be held by something else.
  const auto end = ByteWriter().put(Kind::kEnd).put_text("barrier #4").take();
  EXPECT_TRUE(membership.frame(1, end).empty());
  const std::string waits_on = stall(scope_of(2), 5, "allreduce #5", {1});
  static_cast<void>(membership.tick(milliseconds(500)));
  EXPECT_TRUE(membership.frame(0, waits_on).empty());
  static_cast<void>(membership.tick(milliseconds(500)));
  const auto told = membership.frame(0, waits_on);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_NE(told[0].frame.bytes().find("has left: its program ended"), std::string::npos);
  EXPECT_NE(told[0].frame.bytes().find("after barrier #4"), std::string::npos);
}

// The opening of a group waits no longer for a rank that has left.
TEST(Membership, ARankThatHasLeftEndsTheOpeningsThatWaitForIt) {
  const auto comes = [](std::uint32_t index, std::uint8_t group, const std::vector<int>& members) {
    return exchange(scope_of(group), static_cast<std::uint32_t>(members.size()), index,
                    seconds(3600), "part", members);
  };
  const auto failures = [](Membership::Outs outs) {
    std::erase_if(outs, [](const auto& out) {
      return static_cast<Kind>(out.frame.bytes()[0]) != Kind::kFailure;
    });
    return outs;
  };
  const std::string leave = ByteWriter().put(Kind::kLeave).take();
  Timed membership = joined(4);
  static_cast<void>(membership.frame(11, leave));
  EXPECT_TRUE(membership.frame(10, comes(0, 1, {0, 1})).empty());
  EXPECT_TRUE(membership.frame(12, comes(1, 2, {0, 2})).empty());  // does not wait for rank 1
  EXPECT_TRUE(failures(membership.tick(milliseconds(400))).empty());
  const auto outs = failures(membership.tick(milliseconds(600)));
  EXPECT_EQ(receivers(outs), (std::vector<int>{10, 12, 13}));
  for (const auto& out : outs) {
    const Status why = status_in(out.frame);
    EXPECT_EQ(why.code(), Code::kRemote);
    EXPECT_EQ(why.culprit(), 1);
    EXPECT_TRUE(has(why, "rank 1 (127.0.0.1 pid 101) has destroyed its communicator") &&
                has(why, "rank 0 called for a group with rank 1"))
        << why.message();
  }
  EXPECT_TRUE(failures(membership.tick(seconds(1))).empty()) << "once";
  // Rank 3 has come before it leaves: the group is made.
  static_cast<void>(membership.frame(13, comes(2, 3, {0, 2, 3})));
  static_cast<void>(membership.frame(12, comes(1, 3, {0, 2, 3})));
  static_cast<void>(membership.frame(13, leave));
  EXPECT_TRUE(failures(membership.tick(seconds(1))).empty());
  EXPECT_EQ(receivers(membership.frame(10, comes(0, 3, {0, 2, 3}))), (std::vector<int>{10, 12}));
  // Rank 2's program ends while rank 0 waits for it already.
  static_cast<void>(membership.frame(10, comes(0, 2, {0, 2})));
  static_cast<void>(membership.frame(10, comes(0, 4, {0, 2})));
  EXPECT_TRUE(failures(membership.tick(seconds(1))).empty());
  const auto end = ByteWriter().put(Kind::kEnd).put_text("barrier #4").take();
  static_cast<void>(membership.frame(12, end));
  EXPECT_TRUE(failures(membership.tick(milliseconds(400))).empty());
  const auto told = failures(membership.tick(milliseconds(200)));
  EXPECT_EQ(receivers(told), (std::vector<int>{10, 12}));
  EXPECT_TRUE(has(status_in(told[0].frame), "after barrier #4"));
}

// Every frame kind, cut at every byte, from strangers and from ranks.
TEST(Membership, TruncatedFramesEndTheConnectionOnly) {
  const Uuid scope = scope_of(1);
  const std::vector<std::string> frames = {
      hello(1, 2),
      exchange(scope, 2, 1, seconds(1), "blob"),
      failure(scope, Status(Code::kPara, "why", 0)),
      stall(scope, 3, "allreduce #3", {0, 1}),
      summons(scope),
      refusal(scope, 3, "why"),
      ByteWriter().put(Kind::kEnd).put_text("allreduce #3").take()};
  for (const std::string& whole : frames) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::string_view cut = std::string_view(whole).substr(0, length);
      SCOPED_TRACE("kind " + std::to_string(whole[0]) + " cut at " + std::to_string(length));
      Timed membership("here", 100, seconds(60));
      static_cast<void>(membership.frame(1, hello(0, 2)));
      const auto stranger = membership.frame(2, cut);
      ASSERT_FALSE(stranger.empty());
      EXPECT_TRUE(stranger.back().close);
      EXPECT_FALSE(membership.complete());
      EXPECT_EQ(membership.frame(3, hello(1, 2)).size(), 2u);
      const auto rank = membership.frame(3, cut);
      ASSERT_FALSE(rank.empty());
      EXPECT_TRUE(rank.back().close);
    }
  }
}

TEST(Membership, SurvivesRandomAndMutatedFrames) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same frames every time
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  std::uint64_t frames = 0;
  for (int round = 0; round < 400; ++round) {
    const std::uint32_t size = 1 + below(5);
    Timed membership("here", 100, milliseconds(below(3)));
    for (std::uint32_t r = 0; r < size; ++r) {
      if (below(8) != 0) static_cast<void>(membership.frame(static_cast<int>(r), hello(r, size)));
    }
    for (int i = 0; i < 200; ++i, ++frames) {
      const Uuid scope = scope_of(static_cast<std::uint8_t>(below(3)));
      std::string frame;
      switch (below(7)) {
        case 0:
          frame = hello(below(6), below(3) == 0 ? below(7) : size);
          break;
        case 1:
          frame = exchange(scope, below(7), below(6), milliseconds(below(3)), "blob");
          break;
        case 2:
          frame = failure(scope, Status(below(2) == 0 ? Code::kTimeout : Code::kPara, "why",
                                        static_cast<int>(below(9)) - 2));
          break;
        case 3:
          frame = stall(scope, below(3), below(2) == 0 ? "a" : "b", {below(7), below(7)});
          break;
        case 4:
          frame = ByteWriter().put(Kind::kLeave).take();
          break;
        case 5:
          frame = refusal(scope, below(3), "c");
          break;
        default:
          frame.resize(below(64));
          for (char& c : frame) c = static_cast<char>(random());
      }
      for (std::uint32_t flips = below(3); flips > 0 && !frame.empty(); --flips) {
        frame[random() % frame.size()] = static_cast<char>(random());
      }
      const int connection = static_cast<int>(below(8));
      const auto outs = membership.frame(connection, frame);
      EXPECT_LE(outs.size(), 2u * size + 2);
      for (const auto& out : outs) {
        EXPECT_LE(out.frame.bytes().size(), wire::kReplyCap);
        if (out.close && below(2) == 0) static_cast<void>(membership.closed(out.connection));
      }
      if (below(16) == 0) static_cast<void>(membership.tick(milliseconds(below(3))));
      if (below(32) == 0) static_cast<void>(membership.closed(static_cast<int>(below(8))));
    }
  }
  std::cout << "  " << frames << " frames\n";
}

}  // namespace
}  // namespace hccl::join
