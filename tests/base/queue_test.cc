// Queue against std::deque, in random turns.
#include "hccl/base/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

namespace hccl {
namespace {

void expect_same(Queue<int>& queue, const std::deque<int>& oracle) {
  ASSERT_EQ(queue.size(), oracle.size());
  ASSERT_EQ(queue.empty(), oracle.empty());
  ASSERT_TRUE(std::equal(queue.begin(), queue.end(), oracle.begin(), oracle.end()));
  if (oracle.empty()) return;
  ASSERT_EQ(queue.front(), oracle.front());
  ASSERT_EQ(queue.back(), oracle.back());
  ASSERT_EQ(queue[oracle.size() / 2], oracle[oracle.size() / 2]);
}

TEST(QueueTest, IsAQueue) {
  std::mt19937 random(3);
  Queue<int> queue;
  std::deque<int> oracle;
  for (int turn = 0; turn < 20000; ++turn) {
    // It grows for a while, then shrinks.
    const bool grow = random() % 100 < (turn / 500 % 2 == 0 ? 60u : 40u);
    if (grow || oracle.empty()) {
      queue.push_back(turn);
      oracle.push_back(turn);
    } else if (random() % 4 == 0) {
      const auto at = static_cast<std::ptrdiff_t>(random() % oracle.size());
      queue.erase(queue.begin() + at);
      oracle.erase(oracle.begin() + at);
    } else if (random() % 200 == 0) {
      queue.erase_if([](int item) { return item % 3 == 0; });
      std::erase_if(oracle, [](int item) { return item % 3 == 0; });
    } else if (random() % 1000 == 0) {
      queue.clear();
      oracle.clear();
    } else {
      queue.pop_front();
      oracle.pop_front();
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(queue, oracle)) << "turn " << turn;
  }
}

TEST(QueueTest, LetsGoOfWhatIsTakenOut) {
  Queue<std::shared_ptr<int>> queue;
  const auto item = std::make_shared<int>(1);
  for (int i = 0; i < 10; ++i) queue.push_back(item);
  queue.pop_front();
  queue.erase(queue.begin() + 4);
  EXPECT_EQ(item.use_count(), 9);
  queue.clear();
  EXPECT_EQ(item.use_count(), 1);
}

}  // namespace
}  // namespace hccl
