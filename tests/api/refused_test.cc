// A call that is refused on one rank: the ranks that wait for it hear of it, with both sides of the
// story, instead of waiting until their time is up. By whatever transport HCCL_TRANSPORT says.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr HcclDataType kFloat = HCCL_DATA_TYPE_FP32;

HcclResult sum(float* data, std::uint64_t count, HcclComm comm) {
  return HcclAllReduce(data, data, count, kFloat, HCCL_REDUCE_SUM, comm, nullptr);
}

struct Wrong {
  const char* name;
  HcclResult (*call)(HcclComm comm);
  const char* function;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

float numbers[64];
const Wrong kWrong[] = {
    {"null_buffer", [](HcclComm comm) { return sum(nullptr, 8, comm); }, "HcclAllReduce"},
    {"bad_type",
     [](HcclComm comm) {
       return HcclAllReduce(numbers, numbers, 8, static_cast<HcclDataType>(77), HCCL_REDUCE_SUM,
                            comm, nullptr);
     },
     "HcclAllReduce"},
    {"count_too_large",
     [](HcclComm comm) { return sum(numbers, (std::uint64_t{1} << 31) + 1, comm); },
     "HcclAllReduce"},
    {"own_count_of_alltoallv",
     [](HcclComm comm) {
       const std::uint64_t sends[] = {1, 2, 1}, receives[] = {1, 1, 1}, at[] = {0, 1, 2};
       return HcclAlltoAllV(numbers, sends, at, kFloat, numbers + 8, receives, at, kFloat, comm,
                            nullptr);
     },
     "HcclAlltoAllV"},
};

class Refused : public ::testing::TestWithParam<Wrong> {};

// The rest waits in an allreduce; rank 1 comes first, or last.
TEST_P(Refused, TheOthersHearOfItWithinASecond) {
  for (const bool late : {false, true}) {
    ApiWorld world(3);
    world.on_all([&](int rank) {
      if (rank == 1) {
        if (late) std::this_thread::sleep_for(milliseconds(700));
        ASSERT_NE(GetParam().call(world.comm(1)), HCCL_SUCCESS);
        std::this_thread::sleep_for(milliseconds(1500));
        float mine = 1;  // too late
        EXPECT_EQ(sum(&mine, 1, world.comm(1)), HCCL_E_PARA) << HcclGetLastErrorText();
        return;
      }
      float mine = 1;
      const auto begin = Clock::now();
      EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_E_PARA);
      const auto took = Clock::now() - begin;
      EXPECT_LT(took, milliseconds(late ? 2500 : 1800));  // a second after it, on a busy machine
      const std::string text = HcclGetLastErrorText();
      for (const char* const words :
           {"rank 1", "was refused", GetParam().function, "called allreduce"}) {
        EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, Refused, ::testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

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
