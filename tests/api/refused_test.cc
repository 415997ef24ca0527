// A call that is refused on one rank: the ranks that wait for it hear of it, with both sides of the
// story, instead of waiting until their time is up. By whatever transport HCCL_TRANSPORT says.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "tests/api/refused_calls.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr HcclDataType kFloat = HCCL_DATA_TYPE_FP32;
constexpr int kAtOnce = 16;

HcclResult sum(float* data, std::uint64_t count, HcclComm comm) {
  return HcclAllReduce(data, data, count, kFloat, HCCL_REDUCE_SUM, comm, nullptr);
}

// Rank 1 makes the wrong call and no other; rank 0 the right one, and hears what became of it.
void expect_told(const Refusals& function, const Wrong& wrong) {
  SCOPED_TRACE(std::string(function.name) + ": " + wrong.words);
  ApiWorld world(2);
  std::barrier together(2);
  world.on_all([&](int rank) {
    Arguments arguments(world.comm(rank), rank);
    EXPECT_EQ(HcclCommSetTimeout(world.comm(rank), 20'000), HCCL_SUCCESS);  // rather than for ever
    together.arrive_and_wait();
    if (rank == 1) {
      wrong.change(arguments);
      EXPECT_NE(function.call(arguments), HCCL_SUCCESS);
      const std::string text = HcclGetLastErrorText();
      EXPECT_NE(text.find(wrong.words), std::string::npos) << text;
      together.arrive_and_wait();
      float mine = 1;  // too late
      EXPECT_EQ(sum(&mine, 1, world.comm(1)), HCCL_E_PARA) << HcclGetLastErrorText();
      return;
    }
    const auto begin = Clock::now();
    EXPECT_EQ((function.right == nullptr ? function.call : function.right)(arguments), HCCL_E_PARA);
    EXPECT_LT(Clock::now() - begin, milliseconds(1800));  // a second, on a busy machine
    const std::string text = HcclGetLastErrorText();
    for (const std::string& words :
         {std::string("rank 0 called ") + function.called,
          std::string("rank 1 was refused: ") + function.name, std::string(wrong.words)}) {
      EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
    }
    together.arrive_and_wait();
  });
}

// The time passes waiting, so many at once cost no more.
void expect_all_told(const std::vector<Refusals>& functions) {
  std::vector<std::function<void()>> cases;
  for (const Refusals& function : functions) {
    for (const Wrong& wrong : function.wrong)
      cases.push_back([&] { expect_told(function, wrong); });
  }
  std::atomic<std::size_t> next = 0;
  on_threads(kAtOnce, [&](int) {
    for (std::size_t i = next++; i < cases.size(); i = next++) cases[i]();
  });
}

TEST(Refused, TheOtherHearsOfEveryCollectiveWithinASecond) { expect_all_told(collectives()); }
TEST(Refused, TheOtherHearsOfEveryMessageWithinASecond) { expect_all_told(messages()); }

// All of them after each other in one world: the right call follows.
TEST(Refused, IsForgivenWhateverWasWrong) {
  ApiWorld world(2);
  for (const std::vector<Refusals>& functions : {collectives(), messages()}) {
    for (const Refusals& function : functions) {
      const Function right = function.right == nullptr ? function.call : function.right;
      world.on_all([&](int rank) {
        for (const Wrong& wrong : function.wrong) {
          SCOPED_TRACE(std::string(function.name) + ": " + wrong.words);
          if (rank == 1) {
            Arguments arguments(world.comm(rank), rank);
            wrong.change(arguments);
            EXPECT_NE(function.call(arguments), HCCL_SUCCESS);
          }
          Arguments arguments(world.comm(rank), rank);
          EXPECT_EQ((rank == 1 ? function.call : right)(arguments), HCCL_SUCCESS)
              << HcclGetLastErrorText();
        }
      });
    }
  }
  world.expect_usable();
}

// The rest waits in an allreduce; rank 1 comes last.
TEST(Refused, IsToldAlsoWhereTheOthersWaitAlready) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(700));
      EXPECT_EQ(sum(nullptr, 8, world.comm(1)), HCCL_E_PTR);
      return;
    }
    float mine = 1;
    const auto begin = Clock::now();
    EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_E_PARA);
    EXPECT_LT(Clock::now() - begin, milliseconds(2500));
    const std::string text = HcclGetLastErrorText();
    for (const char* const words : {"rank 1", "was refused", "HcclAllReduce", "called allreduce"}) {
      EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
    }
  });
}

TEST(RefusedByAll, HurtsNobody) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(sum(nullptr, 4, world.comm(rank)), HCCL_E_PTR);
    // One rank takes its time before the right call.
    if (rank == 2) std::this_thread::sleep_for(milliseconds(1800));
    float mine = 1;
    EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_SUCCESS) << HcclGetLastErrorText();
    EXPECT_EQ(mine, 3);
  });
  world.expect_usable();
}

TEST(RefusedOnOne, IsForgivenIfTheRightCallFollows) {
  ApiWorld world(3);
  for (int i = 0; i < 20; ++i) {
    world.on_all([&](int rank) {
      if (rank == i % 3) {
        EXPECT_EQ(sum(nullptr, 4, world.comm(rank)), HCCL_E_PTR);
      }
      float mine = 1;
      EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_SUCCESS) << HcclGetLastErrorText();
    });
  }
  world.expect_usable();
}

// Messages have an order of their own.
TEST(RefusedMessage, IsNoRefusedCollective) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    float mine = 1;
    if (rank == 1) {
      EXPECT_EQ(HcclSend(nullptr, 1, kFloat, 0, world.comm(1), nullptr), HCCL_E_PTR);
      std::this_thread::sleep_for(milliseconds(1200));
    }
    EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_SUCCESS) << HcclGetLastErrorText();
  });
}

}  // namespace
}  // namespace hccl::testing
