// Recent against a list of its entries, in random turns.
#include "hccl/base/recent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace hccl {
namespace {

struct Stored {
  int key = 0;
  int value = 0;
  std::uint64_t weight = 0;
};

std::vector<int> values(const Recent<int, int>& map) {
  std::vector<int> all;
  map.each([&all](int value) { all.push_back(value); });
  return all;
}

TEST(RecentTest, ForgetsItsOldestEntries) {
  std::mt19937 random(3);
  Recent<int, int> map(20);
  std::vector<Stored> oracle;  // oldest first
  const auto forget = [&oracle](int key) {
    std::erase_if(oracle, [key](const Stored& each) { return each.key == key; });
  };
  for (int turn = 0; turn < 20000; ++turn) {
    const int key = static_cast<int>(random() % 12);
    if (random() % 4 == 0) {
      map.erase(key);
      forget(key);
    } else {
      const std::uint64_t weight = turn % 100 == 0 ? 30 : random() % 6;
      ASSERT_EQ(map.put(key, turn, weight), turn);
      forget(key);
      oracle.push_back({key, turn, weight});
      const auto total = [&oracle] {
        std::uint64_t sum = 0;
        for (const Stored& each : oracle) sum += each.weight;
        return sum;
      };
      while (oracle.size() > 1 && total() > 20) oracle.erase(oracle.begin());
    }
    if (turn % 1000 == 0) {  // a copy does not share changes
      const Recent<int, int> copy = map;
      map.erase(oracle.empty() ? 0 : oracle.front().key);
      ASSERT_EQ(copy.size(), oracle.size());
      map = copy;
    }
    std::vector<int> expected;
    for (const Stored& each : oracle) expected.push_back(each.value);
    ASSERT_EQ(values(map), expected) << turn;
    ASSERT_EQ(map.size(), oracle.size());
    for (int each = 0; each < 12; ++each) {
      const auto at = std::ranges::find(oracle, each, &Stored::key);
      const int* const found = std::as_const(map).find(each);
      ASSERT_EQ(found != nullptr, at != oracle.end());
      if (found == nullptr) continue;
      ASSERT_EQ(*found, at->value);
    }
  }
}

}  // namespace
}  // namespace hccl
