// Refused calls for groups, on random worlds, against one table of all pairs of ranks. Each rank
// has a node, which knows what its rank did and received. The root knows the frames that came.
#include "hccl/control/refusals.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hccl::control {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kSize = 6;

class RefusalWorld {
 public:
  explicit RefusalWorld(std::uint64_t seed) : random_(seed), nodes_(kSize) {}

  int told = 0, met = 0, forgiven = 0;

  void step() {
    const std::uint32_t rank = below(kSize);
    const std::uint32_t what = below(10);
    if (what == 0) return everybody_refuses();
    if (what < 4) return refuse(rank);
    if (what == 4) return change_root();
    open();
  }

 private:
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  void say(const Refusal& refusal) {
    EXPECT_TRUE(nodes_[refusal.rank].heard(refusal, now_));
    if (refusal.times == 0) return;
    ByteWriter out;
    put(out, refusal);
    ByteReader in(out.bytes());
    const auto back = get_refusal(in, kSize);
    ASSERT_TRUE(back && in.finished());
    for (int times = below(2); times >= 0; --times) root_.heard(*back, now_);
  }
  void refuse(std::uint32_t rank) {
    texts_[rank] = "text " + std::to_string(below(100));
    say(nodes_[rank].refuse(rank, kEverything, 0, texts_[rank]));
    for (std::uint32_t other = 0; other < kSize; ++other) {
      ++ahead_[rank][other];
      --ahead_[other][rank];
    }
  }
  void everybody_refuses() {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) refuse(rank);
  }
  // The next root collects the refusals that the nodes know, in any order.
  void change_root() {
    root_ = {};
    for (const Refusals& node : nodes_) {
      for (const auto& [key, known] : node.all()) {
        if (known.refusal.times != 0) root_.heard(known.refusal, now_);
      }
    }
  }
  void open() {
    RankSet members{below(kSize)}, came;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      if (below(2) == 0) members |= {rank};
    }
    Gathering sum;
    for (const std::uint32_t rank : members.ranks()) {
      if (below(2) == 0) continue;
      came |= {rank};
      sum.merge(part_of(rank, members));
    }
    if (came.empty()) return;
    const auto why = root_.find(sum);
    const auto culprit = awaited_in_vain(came, members - came);
    ASSERT_EQ(why.has_value(), culprit.has_value());
    if (why) {
      ++told;
      EXPECT_EQ(why->culprit(), static_cast<int>(*culprit));
      EXPECT_NE(why->message().find("was refused: " + texts_[*culprit] + " "), std::string::npos);
      for (const auto& [times, ranks] : root_.numbers(members - came)) sum.refused[times] |= ranks;
      for (const std::uint32_t rank : (members - RankSet{*culprit}).ranks()) {
        if (ahead_[*culprit][rank] <= 0) continue;
        --ahead_[*culprit][rank];
        ++ahead_[rank][*culprit];
      }
      return end({{}, std::move(sum), *why});
    }
    if (below(3) == 0) return;  // the gathering fails for another reason, or never ends
    ++met;
    for (const std::uint32_t rank : (members - came).ranks()) sum.merge(part_of(rank, members));
    for (const std::uint32_t one : members.ranks()) {
      for (const std::uint32_t other : members.ranks()) {
        forgiven += ahead_[one][other] > 0;
        ahead_[one][other] = 0;
      }
    }
    end({{}, std::move(sum), Status()});
  }
  Gathering part_of(std::uint32_t rank, const RankSet& members) const {
    Gathering part;
    part.arrived = {rank};
    part.members.add({rank, members});
    part.refused = nodes_[rank].numbers({rank});
    return part;
  }
  std::optional<std::uint32_t> awaited_in_vain(const RankSet& came, const RankSet& awaited) const {
    for (const std::uint32_t rank : awaited.ranks()) {
      for (const std::uint32_t witness : came.ranks()) {
        if (ahead_[rank][witness] > 0) return rank;
      }
    }
    return std::nullopt;
  }
  void end(const Gatherings::Answer& answer) {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      for (const Refusal& each : nodes_[rank].over(answer, {rank})) say(each);
    }
  }

  std::mt19937_64 random_;
  Time now_{};
  std::vector<Refusals> nodes_;
  Refusals root_;
  std::map<std::uint32_t, std::string> texts_;
  int ahead_[kSize][kSize] = {};  // [a][b]: refused calls of rank a that count for rank b
};

TEST(Refusals, OfGroupsCountSinceTwoRanksHaveLastMetWhateverTheRoot) {
  int told = 0, met = 0, forgiven = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    RefusalWorld world(seed);
    for (int i = 0; i < 60; ++i) world.step();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    told += world.told;
    met += world.met;
    forgiven += world.forgiven;
  }
  EXPECT_GT(told, 1000);
  EXPECT_GT(met, 1000);
  EXPECT_GT(forgiven, 1000);
}

// A refusal counts if it came by the given time, if its rank is awaited, and if the gathering makes
// a group.
TEST(Refusals, OnlyAnOldEnoughOneOfAnAwaitedRankIsFound) {
  Refusals root;
  const Time then(milliseconds(100));
  EXPECT_TRUE(root.heard({kEverything, 2, 1, 0, 1, "bad", {}}, then));
  EXPECT_FALSE(root.heard({kEverything, 2, 1, 0, 1, "again", {}}, then));
  Gathering sum;
  sum.arrived = {1};
  sum.members.add({1, {1, 2}});
  EXPECT_FALSE(root.find(sum, then - milliseconds(1)));
  EXPECT_TRUE(root.find(sum, then, sum.awaited())) << "it awaits the gone, too";
  Gathering survivors = sum;
  survivors.flags &= ~kAwaitsAll;
  EXPECT_TRUE(root.find(survivors, then)) << "it lives";
  EXPECT_FALSE(root.find(survivors, then, sum.awaited())) << "nobody waits for it";
  const auto why = root.find(sum, then);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->code(), Code::kPara);
  EXPECT_EQ(why->culprit(), 2);
  EXPECT_EQ(why->message(),
            "EI0005: the ranks' calls differ: rank 1 called for a group with rank 2, but a call of "
            "rank 2 was refused: bad (world ranks)");
  sum.flags &= ~kMakesGroup;
  EXPECT_FALSE(root.find(sum, then)) << "these belong to a group";
  sum.flags = ~0U;
  sum.arrived = {1, 2};
  EXPECT_FALSE(root.find(sum, then)) << "it has come";
}

TEST(Refusals, AreCountedInThePlaceOfOneOperation) {
  Refusals node;
  const Uuid scope{1};
  const auto refuse = [&](std::uint64_t number) {
    const Refusal refusal = node.refuse(3, scope, number, "bad");
    EXPECT_TRUE(node.heard(refusal, Time{}));
    return refusal.times;
  };
  EXPECT_EQ(refuse(7), 1u);
  EXPECT_EQ(refuse(7), 2u);
  EXPECT_EQ(refuse(8), 1u);
  News news;
  news.merge(Verdict{scope, 1, {Code::kPara, "known", 3}});
  node.forget(news);
  EXPECT_TRUE(node.empty());
}

TEST(Refusals, ANodeForgetsOldOnesRatherThanGrow) {
  Refusals node;
  EXPECT_TRUE(node.heard({kEverything, 1, 1, 0, 1, "bad", {}}, Time{}));
  for (std::uint32_t i = 1; i <= 3 * kRefusalsCap; ++i) {
    const Uuid scope{1, static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8)};
    EXPECT_TRUE(node.heard({scope, 2, i, 0, 1, {}, {}}, Time{}));
    ASSERT_LE(node.all().size(), static_cast<std::size_t>(kRefusalsCap) + 1);
  }
  EXPECT_EQ(node.numbers({1}).count(1), 1u) << "those for groups stay";
}

TEST(Refusals, ComeBackFromTheirBytesAndFromNoOthers) {
  ByteWriter out;
  put(out, Refusal{{9}, 3, 4, 5, 6, "bad", {{-2, {0, 1}}, {7, {5}}}});
  const std::string bytes = out.take();
  const auto read = [](std::string_view from, std::uint32_t size) {
    ByteReader in(from);
    return get_refusal(in, size);
  };
  const auto back = read(bytes, 6);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->met.at(-2), (RankSet{0, 1}));
  EXPECT_EQ(back->text, "bad");
  EXPECT_FALSE(read(bytes, 5)) << "a rank that is not there";
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(read(std::string_view(bytes).substr(0, cut), 6));
  }
}

}  // namespace
}  // namespace hccl::control
