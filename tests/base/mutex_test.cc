#include "hccl/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hccl {
namespace {

TEST(Mutex, ExcludesOtherThreads) {
  Mutex mutex;
  int sum = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int turn = 0; turn < 10'000; ++turn) {
          const MutexLock lock(mutex);
          ++sum;
        }
      });
    }
  }
  EXPECT_EQ(sum, 40'000);
}

TEST(Mutex, IsTakenInTheOrderOfLevels) {
  Mutex first(LockLevel::kState), second(LockLevel::kMailbox), last;
  MutexLock one(first);
  MutexLock two(second);
  MutexLock three(last);
  two.unlock();  // locks may be released in any order
  three.unlock();
  two.lock();
  three.lock();
}

TEST(MutexDeathTest, OutOfOrderEndsADebugBuild) {
  Mutex first(LockLevel::kState), second(LockLevel::kMailbox), same(LockLevel::kMailbox), last;
  const auto take = [](Mutex& held, Mutex& wanted) {
    const MutexLock one(held);
    const MutexLock two(wanted);
  };
  take(first, last);
  EXPECT_DEATH(take(second, first), "order of LockLevel");
  EXPECT_DEATH(take(last, second), "order of LockLevel");
  EXPECT_DEATH(take(second, same), "order of LockLevel");
  take(first, second);  // the right order still works
}

TEST(Mutex, MayBeTriedInAnyOrder) {
  Mutex first(LockLevel::kState), last;
  const MutexLock held(last);
  int taken = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if (!first.try_lock()) continue;
    const MutexLock lock(first, std::adopt_lock);
    ++taken;
  }
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace hccl
