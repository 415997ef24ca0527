// Sums of random parts: compared with sums that are made rank by rank, and checked for their
// algebraic laws.
#include "hccl/control/gathering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace hccl::control {
namespace {

constexpr std::uint32_t kRanks = 12;

std::string bytes_of(const Gathering& sum) {
  ByteWriter out;
  put(out, sum);
  return out.take();
}

// The part of one rank, which often agrees with the parts of the others. A rank may also contradict
// itself.
Gathering random_part(std::mt19937_64& random) {
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  Gathering part;
  const auto rank = static_cast<std::uint32_t>(random() % kRanks);
  part.arrived = {rank};
  part.members.add({rank, chance(80) ? RankSet::range(0, kRanks) : RankSet{rank, 3, 5}});
  part.agreement.add({rank, chance(70) ? "same" : std::string(1 + random() % 3, 'x')});
  part.flags = ~(1U << random() % 8);
  part.patience = std::chrono::nanoseconds(random() % 1000);
  part.waited = std::chrono::nanoseconds(random() % 1000);
  if (chance(30)) part.refused[1 + random() % 2] = {rank};
  if (chance(50)) part.blobs[rank] = "blob " + std::to_string(random() % 2);
  return part;
}

Gathering sum_of(std::vector<Gathering> parts) {
  Gathering sum;
  for (const Gathering& each : parts) sum.merge(each);
  return sum;
}

// Sums the parts in a tree of random shape; some parts arrive in several branches.
Gathering tree_of(std::vector<Gathering> parts, std::mt19937_64& random) {
  for (std::size_t again = random() % 4; again > 0; --again) {
    parts.push_back(parts[random() % parts.size()]);
  }
  std::ranges::shuffle(parts, random);
  while (parts.size() > 1) {
    const std::size_t at = random() % (parts.size() - 1);
    parts[at].merge(parts[at + 1]);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  return parts.front();
}

TEST(Gathering, TheShapeOfTheTreeDoesNotMatter) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Gathering> parts(1 + random() % 20);
    for (Gathering& each : parts) each = random_part(random);
    const std::string sum = bytes_of(sum_of(parts));
    ASSERT_EQ(bytes_of(tree_of(parts, random)), sum) << round;
    ASSERT_EQ(bytes_of(tree_of(parts, random)), sum) << round;
  }
}

TEST(Gathering, IsWhatOneWouldFindBySorting) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Gathering> parts;  // one part for each rank
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      Gathering part = random_part(random);
      while (!part.arrived.contains(rank)) part = random_part(random);
      if (random() % 3 != 0) parts.push_back(std::move(part));
    }
    if (parts.empty()) continue;
    const Gathering sum = tree_of(parts, random);
    ASSERT_EQ(sum.arrived.count(), parts.size());
    ASSERT_EQ(sum.agreement.first, parts.front().agreement.first);
    const auto differs = std::ranges::find_if(parts, [&](const Gathering& each) {
      return each.agreement.first->second != parts.front().agreement.first->second;
    });
    ASSERT_EQ(sum.agreement.other.has_value(), differs != parts.end());
    if (differs != parts.end()) {
      ASSERT_EQ(sum.agreement.other, differs->agreement.first);
    }
    std::uint32_t flags = ~0U;
    std::size_t blobs = 0;
    std::chrono::nanoseconds waited{0};
    for (const Gathering& each : parts) {
      flags &= each.flags;
      blobs += each.blobs.size();
      waited = std::max(waited, each.waited);
      for (const auto& [rank, blob] : each.blobs) ASSERT_EQ(sum.blobs.at(rank), blob);
    }
    ASSERT_EQ(sum.flags, flags);
    ASSERT_EQ(sum.waited, waited);
    ASSERT_EQ(sum.blobs.size(), blobs);
  }
}

TEST(Gathering, TheFirstOtherListIsNamed) {
  Gathering sum;
  for (const std::uint32_t rank : {4u, 1u, 3u}) {
    Gathering part;
    part.arrived = {rank};
    part.members.add({rank, rank == 1 ? RankSet{1, 3} : RankSet{1, 3, 4}});
    sum.merge(part);
  }
  EXPECT_EQ(sum.members.first->first, 1u);
  EXPECT_EQ(sum.members.other->first, 3u) << "the lowest rank that differs";
  EXPECT_EQ(sum.named(), (RankSet{1, 3, 4}));
  EXPECT_TRUE(sum.awaited().empty());
}

// Ranks of one call agree on whether they await all.
TEST(Gathering, AwaitsAllIfAllItsRanksDo) {
  Gathering sum, strict, lenient;
  lenient.flags &= ~kAwaitsAll;
  EXPECT_TRUE(sum.awaits_all()) << "before the first part";
  sum.merge(strict);
  EXPECT_TRUE(sum.awaits_all());
  sum.merge(lenient);
  EXPECT_FALSE(sum.awaits_all());
  EXPECT_NE(sum.flags & kMakesGroup, 0u) << "the flags are independent";
  const std::string bytes = bytes_of(sum);
  ByteReader in(bytes);
  const auto back = get_gathering(in, kRanks);
  ASSERT_TRUE(back);
  EXPECT_FALSE(back->awaits_all());
}

TEST(Gathering, ComesBackFromItsBytesAndFromNoOthers) {
  std::mt19937_64 random(3);
  int read = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const Gathering sum = sum_of({random_part(random), random_part(random), random_part(random)});
    std::string bytes = bytes_of(sum);
    ByteReader in(bytes);
    const auto back = get_gathering(in, kRanks);
    ASSERT_TRUE(back && in.finished());
    ASSERT_EQ(bytes_of(*back), bytes);
    ByteReader fewer(bytes);
    ASSERT_FALSE(get_gathering(fewer, sum.arrived.ranks().back())) << "a rank that is not there";
    for (int changes = 0; changes < 20; ++changes) {
      std::string wrong =
          bytes.substr(0, random() % 2 == 0 ? bytes.size() : random() % bytes.size());
      if (!wrong.empty()) wrong[random() % wrong.size()] = static_cast<char>(random());
      ByteReader reader(wrong);
      const auto other = get_gathering(reader, kRanks);
      ++(other ? read : refused);
      if (other) {
        ASSERT_TRUE(RankSet::range(0, kRanks).contains(other->named() | other->arrived));
        ASSERT_GE(other->patience.count(), 0);
      }
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Gathering, AnUntrueNumberOfBlobsTakesNoMemory) {
  ByteWriter out;
  Gathering sum;
  sum.arrived = RankSet::range(0, kRanks);
  put(out, sum);
  const std::string bytes = out.take();
  for (const std::size_t from_end : {8U, 4U}) {  // of blobs, and of refused calls
    std::string wrong = bytes;
    wrong.replace(bytes.size() - from_end, 4, "\xff\xff\xff\xff");
    ByteReader in(wrong);
    EXPECT_FALSE(get_gathering(in, kRanks));
  }
}

}  // namespace
}  // namespace hccl::control
