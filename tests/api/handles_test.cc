// A handle is never given out twice and causes no crash, and an object is not destroyed while a
// call uses it. comm_test.cc and acl_test.cc test the same through the interface; here are numbers
// that do not occur there.
#include "hccl/api/handles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace hccl::api {
namespace {

// Its destructor clears `word`, so that a later use is found.
struct Thing {
  static constexpr int kAlive = 0x600D;
  ~Thing() {
    word = 0;
    deaths.fetch_add(1);
  }
  int word = kAlive;
  std::atomic<int> users{0};
  static inline std::atomic<int> deaths{0};
};

Status anyhow(const Thing&) { return {}; }

TEST(Handles, InventedOnesAreRefused) {
  Handles<Thing> table("thing", 1), other("other", 2);
  void* const handle = table.add(std::make_shared<Thing>());
  void* const foreign = other.add(std::make_shared<Thing>());
  EXPECT_EQ(table.get(nullptr).status().code(), Code::kPtr);
  EXPECT_EQ(table.get(foreign).status().code(), Code::kPara);
  int on_stack = 0;
  EXPECT_EQ(table.get(&on_stack).status().code(), Code::kPara);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  for (int bit = 0; bit < 64; ++bit) {
    const auto* flipped = reinterpret_cast<const void*>(number ^ (std::uintptr_t{1} << bit));
    EXPECT_FALSE(table.get(flipped).ok()) << bit;
    EXPECT_FALSE(table.take(flipped, anyhow).ok()) << bit;
    EXPECT_FALSE(table.unused(flipped).ok()) << bit;
  }
  EXPECT_TRUE(table.get(handle).ok());
}

// A slot that has used up its numbers is not used again.
TEST(Handles, ASlotDoesNotRunOutOfNumbers) {
  Handles<Thing> table("thing", 1);
  const auto thing = std::make_shared<Thing>();
  void* const first = table.add(thing);
  ASSERT_TRUE(table.take(first, anyhow).ok());
  void* last = nullptr;
  for (int i = 0; i < (1 << 20) + 10; ++i) {
    last = table.add(thing);
    ASSERT_NE(last, first);
    ASSERT_TRUE(table.take(last, anyhow).ok()) << i;
  }
  EXPECT_FALSE(table.get(first).ok());
}

// A program gets a result from a callback and destroys the object, while the call that began the
// work has not yet returned.
TEST(Handles, ACallThatIsAboutToReturnIsWaitedFor) {
  Handles<Thing> table("thing", 1);
  void* const handle = table.add(std::make_shared<Thing>());
  std::atomic<bool> in_call{false}, waited{false};
  std::atomic<int> looks{0};
  std::thread caller([&] {
    const auto use = table.get(handle);
    in_call = true;
    while (looks < 3) std::this_thread::yield();
    EXPECT_FALSE(waited);
  });
  while (!in_call) std::this_thread::yield();
  const auto idle = [&](const Thing&) {
    ++looks;
    return Status();
  };
  table.let_calls_return(handle, idle, std::chrono::minutes(1));
  waited = true;
  EXPECT_TRUE(table.unused(handle).ok());
  caller.join();
}

TEST(Handles, ACallThatWorksIsNotWaitedFor) {
  Handles<Thing> table("thing", 1);
  void* const handle = table.add(std::make_shared<Thing>());
  const auto use = table.get(handle);
  const auto busy = [](const Thing&) { return Status(Code::kAgain, "busy"); };
  table.let_calls_return(handle, busy, std::chrono::hours(1));
  EXPECT_EQ(table.unused(handle).code(), Code::kAgain);
  table.let_calls_return(handle, anyhow, std::chrono::milliseconds(1));
  EXPECT_EQ(table.unused(handle).code(), Code::kAgain);
}

TEST(Handles, ThreadsThatUseAndTakeThemMeetOnlyLivingObjects) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  Handles<Thing> table("thing", 1);
  const int deaths = Thing::deaths.load();
  std::atomic<void*> current{table.add(std::make_shared<Thing>())};
  std::atomic<bool> stop{false};
  std::atomic<int> found{0};
  std::vector<std::thread> users;
  for (int t = 0; t < kThreads; ++t) {
    users.emplace_back([&] {
      while (!stop.load()) {
        {
          const auto use = table.get(current.load());
          if (!use.ok()) {
            EXPECT_EQ(use.status().code(), Code::kPara);
            continue;
          }
          (*use)->users.fetch_add(1);
          EXPECT_EQ((*use)->word, Thing::kAlive);
          (*use)->users.fetch_sub(1);
          found.fetch_add(1);
        }
        // Without the yield, a thread would always hold the handle.
        std::this_thread::yield();
      }
    });
  }
  while (found.load() == 0) std::this_thread::yield();  // until the users have begun
  int again = 0;
  for (int i = 0; i < kRounds;) {
    auto taken = table.take(current.load(), [&](const Thing& thing) {
      EXPECT_EQ(thing.users.load(), 0);  // no call uses the object while this function decides
      return i % 7 == 3 && (again++ & 1) == 0 ? Status(Code::kUnavail, "not now") : Status();
    });
    if (!taken.ok()) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(taken.value()->users.load(), 0);
    EXPECT_EQ(taken.value().use_count(), 1);
    current.store(table.add(std::make_shared<Thing>()));
    ++i;
  }
  stop.store(true);
  for (auto& user : users) user.join();
  EXPECT_EQ(Thing::deaths.load() - deaths, kRounds);
}

}  // namespace
}  // namespace hccl::api
