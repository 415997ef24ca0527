// RankSet against std::set, on random sets.
#include "hccl/control/rank_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <vector>

namespace hccl::control {
namespace {

using OracleSet = std::set<std::uint32_t>;

std::vector<std::uint32_t> list(const OracleSet& set) { return {set.begin(), set.end()}; }

// Some ranges and some single ranks below `end`, so that sets touch, overlap and repeat.
OracleSet random_set(std::mt19937_64& random, std::uint32_t end) {
  OracleSet set;
  for (auto ranges = random() % 5; ranges > 0; --ranges) {
    const auto first = static_cast<std::uint32_t>(random() % end);
    const auto last = std::min<std::uint32_t>(end, first + random() % 12);
    for (std::uint32_t rank = first; rank < last; ++rank) set.insert(rank);
  }
  return set;
}

RankSet shuffled(const OracleSet& set, std::mt19937_64& random) {
  std::vector<std::uint32_t> ranks = list(set);
  ranks.insert(ranks.end(), set.begin(), set.end());
  std::ranges::shuffle(ranks, random);
  return RankSet(std::move(ranks));
}

template <class Algorithm>
OracleSet combine(const OracleSet& a, const OracleSet& b, Algorithm algorithm) {
  OracleSet result;
  algorithm(a.begin(), a.end(), b.begin(), b.end(), std::inserter(result, result.end()));
  return result;
}
#define ALGORITHM(name) [](auto... args) { name(args...); }

TEST(RankSet, DoesWhatASetDoes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    const std::uint32_t end = round % 2 == 0 ? 40 : kRanksCap;
    const OracleSet a = random_set(random, end), b = random_set(random, end);
    const RankSet x = shuffled(a, random), y = shuffled(b, random);
    ASSERT_EQ(x.ranks(), list(a)) << round;
    ASSERT_EQ(x.count(), a.size());
    ASSERT_EQ(x.empty(), a.empty());
    if (!a.empty()) {
      ASSERT_EQ(x.lowest(), *a.begin());
    }
    ASSERT_EQ((x | y).ranks(), list(combine(a, b, ALGORITHM(std::set_union))));
    ASSERT_EQ((x & y).ranks(), list(combine(a, b, ALGORITHM(std::set_intersection))));
    ASSERT_EQ((x - y).ranks(), list(combine(a, b, ALGORITHM(std::set_difference))));
    ASSERT_EQ(x.contains(y), std::ranges::includes(a, b));
    for (std::uint32_t rank = 0; rank < 60; ++rank) {
      ASSERT_EQ(x.contains(rank), a.count(rank) == 1) << rank;
    }
    // Equal sets have equal ranges, whatever operations made them.
    ASSERT_EQ((x - y) | (x & y), x);
    ASSERT_EQ(x == y, a == b);
  }
}

TEST(RankSet, ComesBackFromItsBytes) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 1000; ++round) {
    const RankSet set = shuffled(random_set(random, 100), random);
    ByteWriter out;
    put(out, set);
    ByteReader in(out.bytes());
    const auto read = get_ranks(in, 100);
    ASSERT_TRUE(read && in.finished());
    ASSERT_EQ(*read, set);
    for (std::size_t cut = 0; cut < out.bytes().size(); ++cut) {
      ByteReader less(std::string_view(out.bytes()).substr(0, cut));
      ASSERT_FALSE(get_ranks(less, 100)) << "a set without its last bytes";
    }
  }
}

std::optional<RankSet> read(const std::vector<std::uint32_t>& words, std::uint32_t end) {
  ByteWriter out;
  for (const std::uint32_t word : words) out.put(word);
  ByteReader in(out.bytes());
  return get_ranks(in, end);
}

TEST(RankSet, BytesHaveOneFormAndLimits) {
  EXPECT_EQ(read({4, 0, 3, 5, 8}, 8), RankSet::range(0, 3) | RankSet::range(5, 8));
  EXPECT_FALSE(read({4, 0, 3, 5, 8}, 7)) << "rank 7 is not below 7";
  EXPECT_FALSE(read({4, 0, 3, 3, 5}, 8)) << "the ranges touch";
  EXPECT_FALSE(read({4, 5, 8, 0, 3}, 8)) << "the ranges are not sorted";
  EXPECT_FALSE(read({2, 3, 3}, 8)) << "the range is empty";
  EXPECT_FALSE(read({3, 0, 1, 2}, 8)) << "the last range has no end";
  EXPECT_FALSE(read({0xfffffffe, 0, 1}, 8)) << "the number of ranges is a lie";
  // If random bytes are read as a set, that set is written as the same bytes.
  std::mt19937_64 random(3);
  int sets = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes;
    bytes.resize(4 * (1 + random() % 6));
    for (std::size_t i = 0; i < bytes.size(); i += 4) bytes[i] = static_cast<char>(random() % 7);
    ByteReader in(bytes);
    const auto set = get_ranks(in, 6);
    if (!set || !in.finished()) continue;
    ++sets;
    ByteWriter out;
    put(out, *set);
    ASSERT_EQ(out.bytes(), bytes);
    ASSERT_TRUE(RankSet::range(0, 6).contains(*set));
  }
  EXPECT_GT(sets, 100);
}

TEST(RankSet, ReadsWellForPeople) {
  EXPECT_EQ(RankSet().text(), "");
  EXPECT_EQ((RankSet::range(0, 4) | RankSet{7}).text(), "0-3, 7");
  std::vector<std::uint32_t> odd;
  for (std::uint32_t rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  EXPECT_NE(RankSet(odd).text().find("63, … (100 in all)"), std::string::npos);
}

}  // namespace
}  // namespace hccl::control
