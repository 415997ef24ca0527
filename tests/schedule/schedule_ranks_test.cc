// Rank arithmetic, compared with definitions and brute force, for 1 to 64 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

constexpr int kMost = 64;

TEST(Ranks, WrapIsTheMathematicalRemainder) {
  for (int size = 1; size <= kMost; ++size) {
    for (int number = -3 * size; number <= 3 * size; ++number) {
      const int wrapped = wrap(number, size);
      ASSERT_TRUE(wrapped >= 0 && wrapped < size);
      ASSERT_EQ((number - wrapped) % size, 0) << number << " of " << size;
    }
  }
}

TEST(Ranks, PowersAndLogarithms) {
  for (int number = 1; number <= 1000; ++number) {
    const int power = 1 << static_cast<int>(std::floor(std::log2(number)));
    ASSERT_EQ(floor_power_of_two(number), power);
    ASSERT_EQ(is_power_of_two(number), power == number);
    ASSERT_EQ(ceil_log2(number), static_cast<int>(std::ceil(std::log2(number)))) << number;
  }
  EXPECT_FALSE(is_power_of_two(0));
}

TEST(Ranks, ArcListsConsecutiveNumbersRoundTheEnd) {
  for (int size = 1; size <= kMost; ++size) {
    for (int first = 0; first < 2 * size; ++first) {
      for (int count = 0; count <= size; ++count) {
        std::vector<int> listed;
        const std::vector<Stretch> runs = arc(first, count, size);
        ASSERT_LE(runs.size(), 2u);
        for (const Stretch& run : runs) {
          ASSERT_GT(run.count, 0);
          for (int i = 0; i < run.count; ++i) listed.push_back(run.first + i);
        }
        ASSERT_EQ(static_cast<int>(listed.size()), count);
        for (int i = 0; i < count; ++i) {
          ASSERT_EQ(listed[static_cast<std::size_t>(i)], (first + i) % size);
        }
      }
    }
  }
}

TEST(Ranks, CorePlacesPairTheExtraRanksWithNeighbours) {
  for (int size = 1; size <= kMost; ++size) {
    std::set<int> workers;
    for (int rank = 0; rank < size; ++rank) {
      const CorePlace place = core_place(rank, size);
      ASSERT_EQ(place.core, floor_power_of_two(size));
      const int worker = place.idle ? place.partner : rank;
      ASSERT_EQ(core_rank(place.index, size), worker) << rank << " of " << size;
      if (!place.idle) {
        ASSERT_TRUE(workers.insert(place.index).second);
      }
      if (place.partner < 0) continue;
      ASSERT_EQ(std::abs(place.partner - rank), 1);
      const CorePlace other = core_place(place.partner, size);
      ASSERT_EQ(other.partner, rank);
      ASSERT_NE(other.idle, place.idle);
    }
    ASSERT_EQ(static_cast<int>(workers.size()), floor_power_of_two(size));
    ASSERT_EQ(*workers.rbegin(), floor_power_of_two(size) - 1);
  }
  EXPECT_TRUE(core_place(1, 5).idle);
  EXPECT_EQ(core_place(0, 5).partner, 1);
}

TEST(Ranks, TreesSpanAllRanksAndAreShallow) {
  for (int size = 1; size <= kMost; ++size) {
    for (const int tree : {0, 1}) {
      int roots = 0, deepest = 0;
      for (int rank = 0; rank < size; ++rank) {
        const TreeNode node = tree_node(rank, tree, size);
        deepest = std::max(deepest, node.level);
        roots += node.parent < 0 ? 1 : 0;
        for (const int child : {node.left, node.right}) {
          if (child < 0) continue;
          ASSERT_EQ(tree_node(child, tree, size).parent, rank);
          ASSERT_EQ(tree_node(child, tree, size).level, node.level + 1);
        }
        if (node.parent >= 0) {
          const TreeNode parent = tree_node(node.parent, tree, size);
          ASSERT_TRUE(parent.left == rank || parent.right == rank);
          ASSERT_NE(parent.left, parent.right);
        } else {
          ASSERT_EQ(node.level, 0);
        }
      }
      // There is one root, and each parent is one level lower: all ranks are connected.
      ASSERT_EQ(roots, 1) << size;
      ASSERT_EQ(deepest, tree_height(size));
      ASSERT_LE(deepest, ceil_log2(size + 1));
    }
  }
}

TEST(Ranks, ARankIsAnInnerNodeInAtMostOneTree) {
  for (int size = 1; size <= kMost; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      int inner = 0;
      for (const int tree : {0, 1}) {
        const TreeNode node = tree_node(rank, tree, size);
        inner += node.left >= 0 || node.right >= 0 ? 1 : 0;
      }
      ASSERT_LE(inner, 1) << rank << " of " << size;
    }
  }
}

// All ranks of the left subtree are lower than the node, and all of the right subtree higher. So a
// fold of left, own, right is in rank order.
void in_order(int rank, int size, std::vector<int>& order) {
  if (rank < 0) return;
  const TreeNode node = tree_node(rank, 0, size);
  in_order(node.left, size, order);
  order.push_back(rank);
  in_order(node.right, size, order);
}

TEST(Ranks, TreeZeroListsTheRanksInOrder) {
  for (int size = 1; size <= kMost; ++size) {
    int root = 0;
    while (tree_node(root, 0, size).parent >= 0) root = tree_node(root, 0, size).parent;
    std::vector<int> order, all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    in_order(root, size, order);
    ASSERT_EQ(order, all);
  }
}

}  // namespace
}  // namespace hccl::schedule
