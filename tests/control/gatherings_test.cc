// Gatherings of a node and of small trees: which node answers, when a parent gets a sum, and that
// an answer reaches all members even if the relay that gave the answer has died.
#include "hccl/control/gatherings.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/control/status_words.h"

namespace hccl::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Key = Gatherings::Key;

constexpr Time kStart{};
const Key kFirst{{1}, 1};

Gathering part_of(std::uint32_t rank, const RankSet& members, seconds patience = seconds(60)) {
  Gathering part;
  part.arrived = {rank};
  part.members.add({rank, members});
  part.patience = patience;
  return part;
}

const Gatherings::Place kRelay{RankSet::range(0, 4), {}, false};
const Gatherings::Place kRoot{RankSet::range(0, 9), {}, true};

// A part of a gathering that goes on without the members that have died or left.
Gathering survivor(std::uint32_t rank, const RankSet& members, seconds patience = seconds(60)) {
  Gathering part = part_of(rank, members, patience);
  part.flags &= ~kAwaitsAll;
  return part;
}
Gatherings::Place root_without(const RankSet& gone, const RankSet& silent = {}) {
  Gatherings::Place place = kRoot;
  place.gone = gone;
  place.silent = silent;
  return place;
}
// The root's answer after the ranks `arrived` have come and then the ranks `gone` have gone. The
// ranks `silent` of these may be alive.
Status answer_to(const RankSet& arrived, const RankSet& members, const RankSet& gone,
                 const RankSet& silent) {
  Gatherings root;
  for (const std::uint32_t rank : arrived.ranks()) {
    EXPECT_FALSE(root.add(kFirst, survivor(rank, members), kStart));
  }
  const auto end = root.due(root_without(gone, silent), kStart);
  if (end.answers.size() != 1) return {Code::kInternal, "no answer"};
  EXPECT_EQ(end.answers[0].sum.arrived, arrived);
  return end.answers[0].why;
}

// Two ranks call for a group of both, with different names.
TEST(Gatherings, RanksOfTwoCallsForOneGroupAreTold) {
  Gatherings root;
  for (const std::uint32_t rank : {0U, 1U}) {
    Gathering part = part_of(rank, {0, 1}, seconds(4 + rank));
    part.flags |= kMakesGroup;
    EXPECT_FALSE(root.add({{static_cast<std::uint8_t>(1 + rank)}, 1}, part, kStart));
  }
  for (const std::uint32_t rank : {0U, 1U}) {
    const auto end = root.due(kRoot, kStart + seconds(4 + rank));
    ASSERT_EQ(end.answers.size(), 1U);
    const std::string other = std::to_string(1 - rank);
    EXPECT_EQ(end.answers[0].why.message(),
              "ranks that did not come: " + other + " (world ranks); rank " + other +
                  " called for a group of ranks 0-1 with another name, number or list of ranks");
  }
}

TEST(Gatherings, TheLowestRelayWithAllMembersAnswers) {
  Gatherings relay;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 3}), kStart));
  auto due = relay.due(kRelay, kStart);
  EXPECT_TRUE(due.answers.empty() && due.parts.empty()) << "rank 3 is below, too, and awaited";
  EXPECT_FALSE(relay.add(kFirst, part_of(3, {1, 3}), kStart));
  due = relay.due(kRelay, kStart);
  ASSERT_EQ(due.answers.size(), 1u);
  EXPECT_TRUE(due.parts.empty());
  EXPECT_TRUE(due.answers[0].why.ok());
  EXPECT_EQ(due.answers[0].sum.arrived, (RankSet{1, 3}));
  EXPECT_TRUE(relay.open().empty());
}

TEST(Gatherings, MembersElsewhereAreTheParentsAffair) {
  Gatherings relay, root;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 2, 7}), kStart));
  EXPECT_TRUE(relay.due(kRelay, kStart).parts.empty()) << "rank 2 is below, and awaited";
  EXPECT_FALSE(relay.add(kFirst, part_of(2, {1, 2, 7}), kStart));
  const auto due = relay.due(kRelay, kStart);
  ASSERT_EQ(due.parts.size(), 1u);
  EXPECT_TRUE(relay.due(kRelay, kStart).parts.empty()) << "once is enough";
  EXPECT_FALSE(root.add(kFirst, due.parts[0].second, kStart));
  EXPECT_TRUE(root.due(kRoot, kStart).answers.empty());
  EXPECT_FALSE(root.add(kFirst, part_of(7, {1, 2, 7}), kStart));
  const auto end = root.due(kRoot, kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_TRUE(end.answers[0].why.ok());
  EXPECT_EQ(end.answers[0].sum.arrived, (RankSet{1, 2, 7}));
}

// The node that knew the answer has died, and meanwhile a later gathering has failed.
TEST(Gatherings, ALaterErrorEndsNoEarlierGathering) {
  Gatherings node;
  EXPECT_TRUE(node.answered({{{1}, 2}, part_of(1, {1, 3}), Status(Code::kTimeout, "late")}));
  EXPECT_FALSE(node.add(kFirst, part_of(3, {1, 3}), kStart));
  const Gatherings::Answer dead{kFirst, part_of(3, {1, 3}), Status(Code::kRemote, "dead")};
  EXPECT_TRUE(node.answered(dead)) << "rank 3 waits for it";
  EXPECT_TRUE(node.open().empty());
  EXPECT_FALSE(node.answered(dead));
}

TEST(Gatherings, ADeadMemberBelowHoldsNobodyUp) {
  Gatherings relay;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 2, 7}), kStart));
  Gatherings::Place place = kRelay;
  place.gone = {2};
  EXPECT_EQ(relay.due(place, kStart).parts.size(), 1u);
}

// After two seconds the relay sends its part to the root. When the last member comes to the relay
// later, the relay sends the larger sum, too, and the root answers.
TEST(Gatherings, AnOpenerWhoIsAloneGoesToTheRootAfterTwoSeconds) {
  Gatherings relay, root;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 3}), kStart));
  EXPECT_LE(relay.next(), kStart + seconds(2));
  const auto due = relay.due(kRelay, kStart + seconds(2));
  ASSERT_EQ(due.parts.size(), 1u);
  EXPECT_EQ(due.parts[0].second.patience, seconds(58));
  EXPECT_FALSE(root.add(kFirst, due.parts[0].second, kStart + seconds(2)));
  EXPECT_TRUE(root.late(kStart + seconds(2)).empty()) << "other relays say a word at this time";
  const auto late = root.late(kStart + milliseconds(2200));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].awaited, RankSet{3});
  EXPECT_TRUE(root.late(kStart + seconds(32)).empty());
  EXPECT_EQ(root.late(kStart + milliseconds(32200)).size(), 1u) << "again";
  EXPECT_FALSE(relay.add(kFirst, part_of(3, {1, 3}), kStart + seconds(5)));
  const auto grown = relay.due(kRelay, kStart + seconds(5));
  EXPECT_TRUE(grown.answers.empty());
  ASSERT_EQ(grown.parts.size(), 1u);
  EXPECT_FALSE(root.add(kFirst, grown.parts[0].second, kStart + seconds(5)));
  const auto end = root.due(kRoot, kStart + seconds(5));
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_TRUE(end.answers[0].why.ok());
}

TEST(Gatherings, OpenersWithDifferentListsHearBoth) {
  Gatherings relay, root;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 2, 3}), kStart));
  EXPECT_FALSE(relay.add(kFirst, part_of(2, {1, 2}), kStart));
  const auto due = relay.due(kRelay, kStart);
  EXPECT_TRUE(due.answers.empty()) << "only the root ends a gathering with an error";
  ASSERT_EQ(due.parts.size(), 1u);
  EXPECT_FALSE(root.add(kFirst, due.parts[0].second, kStart));
  const auto end = root.due(kRoot, kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  const Status& why = end.answers[0].why;
  EXPECT_EQ(why.code(), Code::kPara);
  EXPECT_EQ(why.culprit(), 2);
  EXPECT_TRUE(has(why, "1-3") && has(why, "1-2 ")) << why.message();
  EXPECT_TRUE(end.answers[0].sum.named().contains(3)) << "rank 3 hears, too";
  const auto late = root.add(kFirst, part_of(3, {1, 2, 3}), kStart + seconds(1));
  ASSERT_TRUE(late) << "and so does who comes later";
  EXPECT_EQ(late->why.message(), why.message());
}

TEST(Gatherings, TheRootNamesTheAbsentAtTheDeadline) {
  Gatherings root;
  EXPECT_FALSE(root.add(kFirst, part_of(1, {1, 3}, seconds(9)), kStart));
  EXPECT_FALSE(root.add(kFirst, part_of(1, {1, 3}, seconds(9)), kStart + seconds(5)))
      << "said again, which changes nothing";
  EXPECT_TRUE(root.due(kRoot, kStart + seconds(8)).answers.empty());
  const auto end = root.due(kRoot, kStart + seconds(9));
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].why.code(), Code::kTimeout);
  EXPECT_EQ(end.answers[0].why.culprit(), 3);
}

// A deadline passes while parts are on their way to a new root: these parts still count.
TEST(Gatherings, NoDeadlineEndsBeforePartsThatAreOnTheirWay) {
  Gatherings root;
  Gatherings::Place place = kRoot;
  place.parts_by = kStart + seconds(3);
  EXPECT_FALSE(root.add(kFirst, part_of(1, {1, 2, 3}, seconds(2)), kStart));
  EXPECT_TRUE(root.due(place, kStart + milliseconds(2900)).answers.empty());
  EXPECT_FALSE(root.add(kFirst, part_of(2, {1, 2, 3}, seconds(0)), kStart + milliseconds(2950)));
  const auto end = root.due(place, kStart + seconds(3));
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].why.culprit(), 3);
}

TEST(Gatherings, AnAnswerHalfToldReachesAll) {
  Gatherings two, three, root;
  const RankSet members{2, 3};
  const Gatherings::Place at_two{{2}, {}, false}, at_three{{3}, {}, false};
  Gatherings relay;
  for (Gatherings* each : {&two, &three}) {
    const std::uint32_t rank = each == &two ? 2 : 3;
    EXPECT_FALSE(each->add(kFirst, part_of(rank, members), kStart));
    auto due = each->due(rank == 2 ? at_two : at_three, kStart);
    ASSERT_EQ(due.parts.size(), 1u);
    EXPECT_FALSE(relay.add(kFirst, due.parts[0].second, kStart));
  }
  const auto told = relay.due(kRelay, kStart).answers;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(two.answered(told[0]));
  EXPECT_FALSE(two.answered(told[0])) << "it is known";
  // Both adopt a new parent. Child 3 sends its part again, child 2 the answer.
  three.moved();
  const auto again = three.due(at_three, kStart);
  ASSERT_EQ(again.parts.size(), 1u);
  EXPECT_FALSE(root.add(kFirst, again.parts[0].second, kStart));
  EXPECT_TRUE(root.due(kRoot, kStart).answers.empty());
  ASSERT_EQ(two.last().size(), 1u);
  EXPECT_TRUE(root.answered(*two.last()[0])) << "news, for those that wait";
  EXPECT_TRUE(root.open().empty());
  // In the other order, too.
  Gatherings other;
  EXPECT_TRUE(other.answered(*two.last()[0]));
  const auto answer = other.add(kFirst, again.parts[0].second, kStart);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->why.ok());
  EXPECT_EQ(answer->sum.arrived, members);
}

// A part that another relay sent goes up at once. Otherwise each relay of a chain would wait two
// seconds, and the root would learn too late.
TEST(Gatherings, APartialSumFromBelowGoesUpAtOnce) {
  Gatherings relay;
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 3}), kStart));
  EXPECT_TRUE(relay.due(kRelay, kStart).parts.empty());
  EXPECT_FALSE(relay.add(kFirst, part_of(1, {1, 3}), kStart, true));
  EXPECT_EQ(relay.due(kRelay, kStart).parts.size(), 1u);
}

// The members below the first relay come just before its wait is over, so its part is complete.
TEST(Gatherings, RelaysDoNotWaitOneAfterTheOther) {
  Gatherings low, high;
  EXPECT_FALSE(low.add(kFirst, part_of(0, {0, 1, 2, 7}), kStart));
  EXPECT_FALSE(low.add(kFirst, part_of(1, {0, 1, 2, 7}), kStart + milliseconds(1900)));
  const auto due = low.due({{0, 1}, {}, false}, kStart + milliseconds(1900));
  ASSERT_EQ(due.parts.size(), 1u);
  EXPECT_FALSE(high.add(kFirst, due.parts[0].second, kStart + milliseconds(1900)));
  EXPECT_TRUE(high.due(kRelay, kStart + milliseconds(1999)).parts.empty()) << "rank 2 is awaited";
  EXPECT_LE(high.next(), kStart + seconds(2));
  EXPECT_EQ(high.due(kRelay, kStart + seconds(2)).parts.size(), 1u);
}

TEST(Gatherings, SurvivorsGoOnOnceOnlyTheGoneAreMissing) {
  Gatherings root;
  const RankSet members{1, 2, 3, 7};
  EXPECT_FALSE(root.add(kFirst, survivor(1, members), kStart));
  EXPECT_TRUE(root.due(root_without({2}), kStart).answers.empty()) << "ranks 3 and 7 live";
  EXPECT_FALSE(root.add(kFirst, survivor(7, members), kStart));
  EXPECT_TRUE(root.due(root_without({2}), kStart).answers.empty()) << "rank 3 lives";
  const auto end = root.due(root_without({2, 3}), kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_TRUE(end.answers[0].why.ok()) << end.answers[0].why.message();
  EXPECT_EQ(end.answers[0].sum.arrived, (RankSet{1, 7}));
}

TEST(Gatherings, WhoeverAwaitsAllWaitsForTheGone) {
  Gatherings root;
  EXPECT_FALSE(root.add(kFirst, part_of(1, {1, 2, 3}), kStart));
  EXPECT_FALSE(root.add(kFirst, part_of(3, {1, 2, 3}), kStart));
  EXPECT_TRUE(root.due(root_without({2}), kStart).answers.empty()) << "the relay says why it died";
}

// The root may know of a death that a relay does not know of, or the relay of one that the root
// does not.
TEST(Gatherings, OnlyTheRootAnswersSurvivorsIfAMemberIsMissing) {
  Gatherings relay;
  EXPECT_FALSE(relay.add(kFirst, survivor(1, {1, 2, 3}), kStart));
  EXPECT_FALSE(relay.add(kFirst, survivor(3, {1, 2, 3}), kStart));
  Gatherings::Place place{RankSet{0, 1, 3}, {2}, false};  // rank 2 was below
  const auto due = relay.due(place, kStart);
  EXPECT_TRUE(due.answers.empty());
  ASSERT_EQ(due.parts.size(), 1u);
  Gatherings other;
  EXPECT_FALSE(other.add(kFirst, survivor(1, {1, 2, 3}), kStart));
  EXPECT_FALSE(other.add(kFirst, survivor(3, {1, 2, 3}), kStart));
  place.below = kRelay.below;
  EXPECT_TRUE(other.due(place, kStart).answers.empty());
  Gatherings root;
  EXPECT_FALSE(root.add(kFirst, due.parts[0].second, kStart));
  const auto end = root.due(root_without({2}), kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].sum.arrived, (RankSet{1, 3}));
}

TEST(Gatherings, SurvivorsThatAllLiveAreAnsweredBelowTheRoot) {
  Gatherings relay;
  EXPECT_FALSE(relay.add(kFirst, survivor(1, {1, 3}), kStart));
  EXPECT_FALSE(relay.add(kFirst, survivor(3, {1, 3}), kStart));
  const auto due = relay.due(kRelay, kStart);
  ASSERT_EQ(due.answers.size(), 1u);
  EXPECT_TRUE(due.answers[0].why.ok());
}

TEST(Gatherings, SurvivorsWithDifferentListsHearBoth) {
  Gatherings root;
  EXPECT_FALSE(root.add(kFirst, survivor(1, {1, 2, 3}), kStart));
  EXPECT_FALSE(root.add(kFirst, survivor(2, {1, 2}), kStart));
  const auto end = root.due(root_without({3}), kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].why.code(), Code::kPara);
  EXPECT_EQ(end.answers[0].why.culprit(), 2);
}

TEST(Gatherings, TheDeadlineOfSurvivorsNamesTheLivingOnly) {
  Gatherings root;
  EXPECT_FALSE(root.add(kFirst, survivor(1, {1, 3, 5}, seconds(9)), kStart));
  const auto end = root.due(root_without({3}), kStart + seconds(9));
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].why.code(), Code::kTimeout);
  EXPECT_EQ(end.answers[0].why.culprit(), 5);
  EXPECT_TRUE(has(end.answers[0].why, "come: 5 ")) << end.answers[0].why.message();
}

// The root counts these parts without members that have died or left.
TEST(Gatherings, TheLargerPartOfTheSurvivorsGoesOn) {
  const RankSet six = RankSet::range(0, 6);
  const auto ok = [&](const RankSet& here, const RankSet& silent, const RankSet& died = {}) {
    const Status why = answer_to(here, six, silent | died, silent);
    EXPECT_TRUE(why.ok() || why.code() == Code::kUnavail) << why.message();
    return why.ok();
  };
  EXPECT_TRUE(ok({2, 3, 4, 5}, {0, 1}));
  EXPECT_FALSE(ok({0, 1}, {2, 3, 4, 5}));
  EXPECT_TRUE(ok({0, 4, 5}, {1, 2, 3})) << "half, with the lowest rank";
  EXPECT_FALSE(ok({1, 2, 3}, {0, 4, 5})) << "half, without the lowest rank";
  EXPECT_TRUE(ok({5}, {}, {0, 1, 2, 3, 4})) << "nobody is silent";
  EXPECT_TRUE(ok({1, 5}, {4}, {0, 2, 3})) << "the larger part of those that may live";
  EXPECT_TRUE(ok({1, 2}, {4, 5}, {0, 3})) << "half, with the lowest that may live";
  EXPECT_FALSE(ok({4, 5}, {1, 2}, {0, 3}));
  EXPECT_FALSE(ok({5}, {1, 2}, {0, 3, 4}));
}

// The silent members' parts are in the sum, but these members may be on the other side of a cut and
// go on there.
TEST(Gatherings, SilentMembersThatHadArrivedAreNotOnThisSide) {
  const RankSet all = RankSet::range(0, 5), silent{0, 1, 2};
  EXPECT_EQ(answer_to(all, all, silent, silent).code(), Code::kUnavail);
  EXPECT_TRUE(answer_to(all, all, {3, 4}, {3, 4}).ok());
  EXPECT_TRUE(answer_to({1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 4, 5}, {4, 5}).ok())
      << "half, with the lowest rank that lives";
  EXPECT_EQ(answer_to({1, 3, 4}, {1, 2, 3, 4}, {1, 2, 4}, {2, 4}).code(), Code::kUnavail)
      << "rank 1 has arrived, and died";
}

TEST(Gatherings, ThePartThatMayNotGoOnHearsWhy) {
  const Status why = answer_to({4, 5}, {1, 2, 4, 5}, {1, 2}, {1, 2});
  EXPECT_EQ(why.code(), Code::kUnavail);
  EXPECT_EQ(why.culprit(), Status::kNobody);
  EXPECT_TRUE(has(why, "ranks 4-5 ") && has(why, "ranks 1-2,")) << why.message();
  EXPECT_TRUE(answer_to({4, 5}, {4, 5, 6}, {6, 1, 2}, {1, 2}).ok()) << "others are no members";
}

// One cut silences ranks one after the other: ranks 3 and 4 are in doubt when rank 2 is silent.
TEST(Gatherings, RanksInDoubtAreOnTheOtherSideUntilAllIsKnown) {
  const RankSet members = RankSet::range(0, 5);
  Gatherings::Place place = root_without({2}, {2});
  place.in_doubt = {3, 4};
  const auto root_of = [&](const RankSet& arrived) {
    Gatherings root;
    for (const std::uint32_t rank : arrived.ranks()) {
      EXPECT_FALSE(root.add(kFirst, survivor(rank, members, seconds(9)), kStart));
    }
    return root;
  };
  Gatherings root = root_of({0, 1, 3, 4});
  EXPECT_TRUE(root.due(place, kStart).answers.empty()) << "ranks 0 and 1 may be the smaller part";
  Gatherings late = root;
  const auto end = late.due(place, kStart + seconds(9));
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_EQ(end.answers[0].why.code(), Code::kTimeout);
  EXPECT_TRUE(has(end.answers[0].why, "2-4 ")) << end.answers[0].why.message();
  Gatherings known = root;
  place.in_doubt = {4};
  const auto larger = known.due(place, kStart + seconds(1));
  ASSERT_EQ(larger.answers.size(), 1u) << "rank 3 answers again";
  EXPECT_TRUE(larger.answers[0].why.ok());
  place = root_without({2, 3, 4}, {2, 3, 4});
  const auto smaller = root.due(place, kStart + seconds(2));
  ASSERT_EQ(smaller.answers.size(), 1u) << "they are cut off, too";
  EXPECT_EQ(smaller.answers[0].why.code(), Code::kUnavail);
  place = root_without({});
  place.in_doubt = {3, 4};
  EXPECT_EQ(root_of(members).due(place, kStart).answers.size(), 1u) << "nobody is silent";
}

// The gathering began before the cut; the operations that follow name the silent ranks.
TEST(Gatherings, SilenceEndsNoGatheringThatAwaitsAllAndHasAll) {
  Gatherings root;
  for (const std::uint32_t rank : {1u, 2u, 3u}) {
    EXPECT_FALSE(root.add(kFirst, part_of(rank, {1, 2, 3}), kStart));
  }
  const auto end = root.due(root_without({1, 2}, {1, 2}), kStart);
  ASSERT_EQ(end.answers.size(), 1u);
  EXPECT_TRUE(end.answers[0].why.ok()) << end.answers[0].why.message();
}

// A member below has moved to this relay, so it may have missed the answer from above.
TEST(Gatherings, APartThatComesAgainGoesUpAgain) {
  Gatherings relay;
  const RankSet members{1, 7};
  EXPECT_FALSE(relay.add(kFirst, part_of(1, members), kStart));
  EXPECT_EQ(relay.due(kRelay, kStart).parts.size(), 1u);
  EXPECT_TRUE(relay.due(kRelay, kStart).parts.empty());
  EXPECT_FALSE(relay.add(kFirst, part_of(1, members), kStart));
  EXPECT_EQ(relay.due(kRelay, kStart).parts.size(), 1u);
}

// A member's relay died before it passed the answer on, and that death made the next gathering
// fail.
TEST(Gatherings, TheLastSuccessIsKeptBesideTheNextError) {
  Gatherings root;
  const Gatherings::Key next{kFirst.group, kFirst.number + 1};
  Gathering whole = part_of(1, {1, 3});
  whole.merge(part_of(3, {1, 3}));
  EXPECT_TRUE(root.answered({kFirst, whole, Status()}));
  EXPECT_TRUE(root.answered({next, part_of(1, {1, 3}), {Code::kRemote, "died", 2}}));
  const auto again = root.add(kFirst, part_of(3, {1, 3}), kStart);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->why.ok());
  EXPECT_EQ(again->sum.arrived, (RankSet{1, 3}));
  EXPECT_EQ(root.last().size(), 2u) << "a new parent hears both";
  Gatherings other;
  EXPECT_TRUE(other.answered({next, whole, {Code::kRemote, "died", 2}}));
  EXPECT_TRUE(other.answered({kFirst, whole, Status()})) << "news, in the other order, too";
  EXPECT_FALSE(other.answered({next, whole, {Code::kRemote, "left", 2}}));
}

TEST(Gatherings, ANodeTakesNoMoreThanItsLimit) {
  Gatherings root;
  for (std::uint64_t number = 1; number <= kGatheringsCap; ++number) {
    ASSERT_FALSE(root.add({{1}, number}, part_of(1, {1, 3}), kStart));
  }
  const auto refused = root.add({{1}, kGatheringsCap + 1}, part_of(1, {1, 3}), kStart);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->why.code(), Code::kUnavail);
  EXPECT_FALSE(root.add(kFirst, part_of(1, {1, 3}), kStart)) << "those that are open go on";
  for (std::uint32_t group = 0; group < kGatheringsCap + 100; ++group) {
    const Uuid id{static_cast<std::uint8_t>(group), static_cast<std::uint8_t>(group >> 8), 7};
    EXPECT_TRUE(root.answered({{id, 1}, {}, Status()}));
  }
  EXPECT_LE(root.last().size(), kGatheringsCap);
}

// The answers of many groups are forgotten in the order in which they came, so an answer that a
// member may still miss is there.
TEST(Gatherings, ANodeKeepsTheLatestAnswersWithinALimit) {
  Gatherings node;
  const auto key = [](std::uint32_t group) {
    // The first bytes decide the order of the keys: it differs from the order of the answers.
    return Gatherings::Key{{static_cast<std::uint8_t>(97 * group), static_cast<std::uint8_t>(group),
                            static_cast<std::uint8_t>(group >> 8)},
                           1};
  };
  for (std::uint32_t group = 0; group < 1000; ++group) {
    Gathering sum = part_of(1, {1, 3});
    sum.merge(part_of(3, {1, 3}));
    sum.blobs[1] = std::string(50'000, 'a');
    EXPECT_TRUE(node.answered({key(group), sum, Status()}));
    for (std::uint32_t recent = group < 100 ? 0 : group - 100; recent <= group; ++recent) {
      ASSERT_TRUE(node.add(key(recent), part_of(3, {1, 3}), kStart)) << recent << " at " << group;
    }
    std::size_t bytes = 0;
    for (const auto* each : node.last()) bytes += each->sum.blobs.at(1).size();
    ASSERT_LE(bytes, kAnswersCap);
  }
  EXPECT_EQ(node.last().front()->sum.arrived, (RankSet{1, 3}));
}

}  // namespace
}  // namespace hccl::control
