// Groups open with the first operation of any rank, and the other ranks need not call anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hccl/core/opener.h"
#include "tests/core/transports.h"
#include "tests/support/one_message.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;
using std::chrono::milliseconds;

constexpr int kMembers = 4;

void good(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

void await(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(milliseconds(1));
}

class GroupOpening : public ::testing::TestWithParam<std::string> {
 protected:
  /// Makes a group of all ranks, in reverse order, and runs the body on each rank.
  void run(
      const std::function<void(Communicator& world, std::shared_ptr<Communicator> group)>& body) {
    world_.run([&](Communicator& world) {
      auto made = world.group("group", {3, 2, 1, 0}, made_);
      ASSERT_TRUE(made.ok()) << made.status().message();
      body(world, std::move(made).value());
    });
    ++made_;
  }
  static Config config() {
    Config config;
    config.transport = GetParam();
    config.flight_recorder_dir = "off";
    config.log_level = "off";
    return config;
  }
  /// Waits until `count` ranks have called meet() in this test.
  void meet(int count) {
    ++met_;
    await([&] { return met_ >= count; });
  }

  World world_{kMembers, config()};
  std::uint64_t made_ = 0;
  std::atomic<int> met_ = 0;
};

Status swap_with(Communicator& c, int peer, int* value) {
  int other = -1;
  exec::Transfer both[] = {{true, peer, value, 1, DataType::kInt32, 0},
                           {false, peer, &other, 1, DataType::kInt32, 0}};
  const Status status = c.operations().exchange(both);
  if (status.ok() && other != peer) return {Code::kInternal, "got " + std::to_string(other)};
  return status;
}

Status sum_ranks(Communicator& c) {
  int sum = c.rank(), result = -1;
  Call call;
  call.op = Op::kAllReduce;
  call.in = &sum;
  call.out = &result;
  call.count = 1;
  call.type = DataType::kInt32;
  call.reduce = ReduceOp::kSum;
  const Status status = c.operations().run(call);
  if (status.ok() && result != c.size() * (c.size() - 1) / 2) {
    return {Code::kInternal, "a sum of " + std::to_string(result)};
  }
  return status;
}

TEST_P(GroupOpening, AMessageNeedsNoCallOfOtherRanks) {
  run([&](Communicator&, const std::shared_ptr<Communicator>& group) {
    EXPECT_EQ(group->operations().is_open(), transport::is_plugin(GetParam()));
    int mine = group->rank();
    if (mine < 2) {
      good(swap_with(*group, 1 - mine, &mine));
    }
    meet(kMembers);  // the other ranks make their first call only now
    good(sum_ranks(*group));
    good(swap_with(*group, mine ^ 1, &mine));
  });
}

TEST_P(GroupOpening, GroupsOpenInAnyOrder) {
  constexpr int kGroups = 6;
  world_.run([&](Communicator& world) {
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int i = 0; i < kGroups; ++i) {
      auto made = world.group("group " + std::to_string(i), {0, 1, 2, 3}, 0);
      ASSERT_TRUE(made.ok()) << made.status().message();
      groups.push_back(std::move(made).value());
    }
    // The pairs use the groups in opposite orders.
    int mine = world.rank();
    if (mine > 1) std::reverse(groups.begin(), groups.end());
    for (const auto& each : groups) good(swap_with(*each, mine ^ 1, &mine));
    meet(kMembers);
    if (mine > 1) std::reverse(groups.begin(), groups.end());
    for (const auto& each : groups) good(sum_ranks(*each));
  });
}

// With a plugin, groups open at once and need all ranks.
class OpeningAside : public GroupOpening {};

// Ranks make a group of a communicator that opens at the same time.
TEST_P(OpeningAside, GroupsOfACommunicatorThatOpens) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    world_.run([&](Communicator& world) {
      auto smaller = world.shrink("smaller", {0, 1, 2, 3}, round, nullptr);
      ASSERT_TRUE(smaller.ok()) << smaller.status().message();
      int mine = world.rank();
      if (mine < 2) good(swap_with(**smaller, 1 - mine, &mine));
      const auto group = (*smaller)->group("group", {3, 2, 1, 0}, 0);
      ASSERT_TRUE(group.ok()) << group.status().message();
      good(sum_ranks(**group));
      group.value()->leave();
      (*smaller)->leave();
    });
  }
}

TEST_P(OpeningAside, RanksThatHaveLeftConcernOnlyThoseThatNeedThem) {
  for (const bool collective : {false, true}) {
    met_ = 0;
    run([&](Communicator&, std::shared_ptr<Communicator> group) {
      int mine = group->rank();
      if (mine > 1) {
        group->leave();
        group.reset();
      }
      meet(kMembers);
      if (mine > 1) return;
      good(swap_with(*group, 1 - mine, &mine));
      good(swap_with(*group, 1 - mine, &mine));
      meet(kMembers + 2);
      const Status failed = collective || mine == 1
                                ? sum_ranks(*group)
                                : send_one(*group, 3, &mine, 1, DataType::kInt32);
      EXPECT_EQ(failed.code(), Code::kRemote) << failed.message();
      const std::string text = failed.message();
      EXPECT_NE(text.find("destroyed"), text.npos) << text;
      // World ranks 0 and 1 are ranks 3 and 2 of the group.
      EXPECT_TRUE(failed.culprit() == 0 || failed.culprit() == 1) << failed.culprit();
      EXPECT_EQ(sum_ranks(*group).code(), Code::kRemote);
    });
  }
  world_.run([&](Communicator& world) { good(sum_ranks(world)); });
}

// A rank destroys the group while others open it. It may still take part in opening connections.
TEST_P(OpeningAside, RanksMayLeaveMeanwhile) {
  std::minstd_rand random(made_ + 7);
  for (int round = 0; round < 12; ++round) {
    const int victim = 2 + round % 2;
    const std::chrono::microseconds after(random() % 3000);
    run([&](Communicator&, std::shared_ptr<Communicator> group) {
      int mine = group->rank();
      if (mine == victim) {
        std::this_thread::sleep_for(after);
        group->leave();
        group.reset();
      } else if (mine < 2) {
        good(swap_with(*group, 1 - mine, &mine));
      }
    });
  }
}

TEST_P(GroupOpening, AFailureEndsAnOpeningThatWaits) {
  run([&](Communicator&, const std::shared_ptr<Communicator>& group) {
    if (group->rank() == 3) {
      group->abort("no more steps");
    }
    const Status failed = sum_ranks(*group);
    EXPECT_EQ(failed.code(), Code::kUnavail) << failed.message();
    EXPECT_NE(failed.message().find("no more steps"), std::string::npos) << failed.message();
  });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, GroupOpening, ::testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Everywhere, OpeningAside, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

using core::Opener;

TEST(Opener, OpensOnceOnWhicheverThreadIsFirst) {
  for (int round = 0; round < 200; ++round) {
    Opener opener;
    std::atomic<int> opened = 0;
    const Opener::Open open = [&] {
      ++opened;
      return Opener::State::kPartly;
    };
    std::atomic<bool> begin = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        while (!begin) std::this_thread::yield();
        if (i == 0) return opener.open_aside(open);
        EXPECT_EQ(opener.open(open, Waiter()), Opener::State::kPartly);
      });
    }
    begin = true;
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(opener.close(std::chrono::seconds(1)), Opener::State::kPartly);
    EXPECT_EQ(opened, 1);
  }
}

TEST(Opener, NeverOpensOnceClosed) {
  Opener opener;
  const Opener::Open open = []() -> Opener::State {
    ADD_FAILURE();
    return Opener::State::kOpen;
  };
  EXPECT_EQ(opener.close(milliseconds(0)), Opener::State::kClosed);
  opener.open_aside(open);
  EXPECT_EQ(opener.open(open, Waiter()), Opener::State::kFailed);
}

TEST(Opener, GivesUpTheWaitForAnOpening) {
  std::atomic<bool> end = false;
  Opener opener;
  opener.open_aside([&] {
    await([&] { return end.load(); });
    return Opener::State::kOpen;
  });
  const Waiter soon{.deadline = Deadline::after(milliseconds(20)), .policy = kSleepAtOnce};
  EXPECT_EQ(opener.open([] { return Opener::State::kOpen; }, soon), Opener::State::kOpening);
  EXPECT_EQ(opener.close(milliseconds(20)), Opener::State::kOpening);
  end = true;
  EXPECT_EQ(opener.close(std::chrono::seconds(30)), Opener::State::kOpen);
}

}  // namespace
}  // namespace hccl::testing
