// If a call is refused on one rank, the ranks that wait for that rank get an error with both calls,
// instead of waiting until their time is up. HCCL_TRANSPORT chooses the transport.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"
#include "hccl/hccl_fusion.h"
#include "tests/api/refused_calls.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr HcclDataType kFloat = HCCL_DATA_TYPE_FP32;
constexpr int kAtOnce = 16;

HcclResult sum(float* data, std::uint64_t count, HcclComm comm) {
  return HcclAllReduce(data, data, count, kFloat, HCCL_REDUCE_SUM, comm, nullptr);
}

// Rank 1 makes only the wrong call; rank 0 makes the right call, and gets the error of rank 1's
// call.
void expect_known(const Refusals& function, const Wrong& wrong) {
  SCOPED_TRACE(std::string(function.name) + ": " + wrong.words);
  ApiWorld world(2);
  std::barrier together(2);
  world.on_all([&](int rank) {
    Arguments arguments(world.comm(rank), rank);
    EXPECT_EQ(HcclCommSetTimeout(world.comm(rank), 20'000), HCCL_SUCCESS);  // if a rank hangs
    together.arrive_and_wait();
    if (rank == 1) {
      expect_refused(function, wrong, arguments);
      together.arrive_and_wait();
      float mine = 1;  // this right call comes too late
      EXPECT_EQ(sum(&mine, 1, world.comm(1)), HCCL_E_PARA) << HcclGetLastErrorText();
      return;
    }
    expect_told(function, wrong, arguments);
    together.arrive_and_wait();
  });
}

// The cases mostly wait, so running many at once costs no more time.
void expect_all_told(const std::vector<Refusals>& functions) {
  std::vector<std::function<void()>> cases;
  for (const Refusals& function : functions) {
    for (const Wrong& wrong : function.wrong)
      cases.push_back([&] { expect_known(function, wrong); });
  }
  std::atomic<std::size_t> next = 0;
  on_threads(kAtOnce, [&](int) {
    for (std::size_t i = next++; i < cases.size(); i = next++) cases[i]();
  });
}

TEST(Refused, TagsThatDiffer) {
  ApiWorld world(2);
  const auto tagged = [&](int rank, std::uint32_t tag) {
    float value = 1;
    EXPECT_EQ(HcclSetCallTag(tag), HCCL_SUCCESS);
    const HcclResult result = sum(&value, 1, world.comm(rank));
    EXPECT_EQ(HcclSetCallTag(0), HCCL_SUCCESS);
    return result;
  };
  world.on_all([&](int rank) {
    EXPECT_EQ(tagged(rank, 1), HCCL_SUCCESS) << HcclGetLastErrorText();
    EXPECT_EQ(tagged(rank, 0), HCCL_SUCCESS) << HcclGetLastErrorText();
    EXPECT_EQ(tagged(rank, rank == 0 ? 0xAB : 0xCD), HCCL_E_PARA);
    const std::string text = HcclGetLastErrorText();
    EXPECT_TRUE(text.find("tag #800000ab") != text.npos && text.find("tag #800000cd") != text.npos)
        << text;
  });
}

TEST(Refused, TheOtherHearsOfEveryCollectiveWithinASecond) { expect_all_told(collectives()); }

HcclResult create_fusion(Arguments& a, HcclFusion* fusion) {
  const HcclFusionGradient gradients[] = {{"a", a.send, a.count}, {"b", a.recv, a.count}};
  return HcclFusionCreate(a.comm, gradients, 2, nullptr, fusion);
}

TEST(Refused, TheOtherHearsOfAFusionWithinASecond) {
  const auto create = [](Arguments& a) {
    HcclFusion none;
    return create_fusion(a, &none);
  };
  const auto step = [](Arguments& a) {
    HcclFusion fusion;
    EXPECT_EQ(create_fusion(a, &fusion), HCCL_SUCCESS) << HcclGetLastErrorText();
    for (const std::uint32_t gradient : {0U, 1U}) {
      EXPECT_EQ(HcclFusionReady(fusion, gradient), HCCL_SUCCESS);
    }
    return HcclFusionWait(fusion);  // the world ends the fusion
  };
  expect_all_told({{"HcclFusionCreate",
                    "allreduce #1",
                    create,
                    {{[](Arguments& a) { a.send = nullptr; }, "gradients[0].data"},
                     {[](Arguments& a) { a.recv = a.send; }, "overlaps gradient 0"}},
                    step}});
}

TEST(Refused, TheOtherHearsOfEveryMessageWithinASecond) { expect_all_told(messages()); }

// Arguments for a sub-communicator of both ranks; rank 1 makes one of them wrong.
struct GroupArguments {
  HcclComm comm;
  std::uint32_t number = 2, ids[2] = {0, 1}, mine;
  std::uint32_t* ranks = ids;
  std::uint64_t id;
  HcclCommConfig own;
  HcclCommConfig* config = &own;
  HcclComm made = nullptr;
  HcclComm* out = &made;

  GroupArguments(HcclComm world, int rank, std::uint64_t number_of_group = 1)
      : comm(world), mine(static_cast<std::uint32_t>(rank)), id(number_of_group) {
    HcclCommConfigInit(&own);
  }
  GroupArguments(const GroupArguments&) = delete;
  GroupArguments& operator=(const GroupArguments&) = delete;
  HcclResult call() { return HcclCreateSubCommConfig(&comm, number, ranks, id, mine, config, out); }
};
struct WrongGroup {
  void (*change)(GroupArguments&);
  const char* words;
};
const WrongGroup kWrongGroups[] = {
    {[](GroupArguments& a) { a.ranks = nullptr; }, "rankIds is null"},
    {[](GroupArguments& a) { a.config = nullptr; }, "config is null"},
    {[](GroupArguments& a) { a.out = nullptr; }, "subComm is null"},
    {[](GroupArguments& a) { a.number = 0; }, "rankNum is 0"},
    {[](GroupArguments& a) { a.number = 3; }, "rankNum is 3"},
    {[](GroupArguments& a) { a.ids[0] = 2; }, "rankIds[0] is 2"},
    {[](GroupArguments& a) { a.ids[0] = 1; }, "rankIds[1] is 1, for the second time"},
    {[](GroupArguments& a) { a.mine = 1 - a.mine; }, "which is not where rankIds has"},
    {[](GroupArguments& a) { a.id = 0xFFFFFFFF; }, "subCommId is 0xFFFFFFFF"},
    {[](GroupArguments& a) { a.own.hcclDeterministic = 9; }, "hcclDeterministic"},
};

TEST(RefusedGroup, TheOtherHearsOfItWithinASecond) {
  constexpr int kCases = std::size(kWrongGroups);
  on_threads(kCases, [](int i) {
    const WrongGroup& wrong = kWrongGroups[i];
    SCOPED_TRACE(wrong.words);
    ApiWorld world(2);
    world.on_all([&](int rank) {
      GroupArguments arguments(world.comm(rank), rank);
      if (rank == 1) {
        wrong.change(arguments);
        SAYS(arguments.call(),
             arguments.ranks && arguments.config && arguments.out ? HCCL_E_PARA : HCCL_E_PTR,
             wrong.words);
        return;
      }
      const Load load;
      const auto begin = Clock::now();
      SAYS(arguments.call(), HCCL_E_PARA, wrong.words);
      EXPECT_LT(Clock::now() - begin, load.allows(kTold));
      const std::string text = HcclGetLastErrorText();
      EXPECT_NE(text.find("rank 1 was refused: HcclCreateSubCommConfig: "), std::string::npos)
          << text;
    });
    world.expect_usable();
  });
}

TEST(RefusedGroup, HurtsNobodyIfAllMakeTheSameMistake) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    std::uint64_t id = 0;
    for (const WrongGroup& wrong : kWrongGroups) {
      SCOPED_TRACE(wrong.words);
      GroupArguments bad(world.comm(rank), rank, ++id);
      wrong.change(bad);
      EXPECT_NE(bad.call(), HCCL_SUCCESS);
      // In one group, rank 1 makes the right call late.
      if (rank == 1 && id == 1) std::this_thread::sleep_for(milliseconds(1800));
      GroupArguments right(world.comm(rank), rank, id);
      EXPECT_EQ(right.call(), HCCL_SUCCESS) << HcclGetLastErrorText();
      if (right.made == nullptr) return;
      EXPECT_EQ(HcclCommDestroy(right.made), HCCL_SUCCESS) << HcclGetLastErrorText();
    }
  });
  world.expect_usable();
}

// The other ranks wait in an allreduce before rank 1 makes its wrong call.
TEST(Refused, IsToldAlsoWhereTheOthersWaitAlready) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(700));
      EXPECT_EQ(sum(nullptr, 8, world.comm(1)), HCCL_E_PTR);
      std::this_thread::sleep_for(milliseconds(1500));  // the right call comes too late
    }
    float mine = 1;
    EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_E_PARA);
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
    // Rank 2 makes the right call late.
    if (rank == 2) std::this_thread::sleep_for(milliseconds(1800));
    float mine = 1;
    EXPECT_EQ(sum(&mine, 1, world.comm(rank)), HCCL_SUCCESS) << HcclGetLastErrorText();
    EXPECT_EQ(mine, 3);
  });
  world.expect_usable();
}

TEST(RefusedByBothEnds, HurtsNeither) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    HcclComm comm = world.comm(rank);
    float mine = 7;
    // First the sender makes the right call late, then the receiver.
    for (const int sender : {0, 1}) {
      const bool sends = rank == sender;
      const auto message = [&](float* data) {
        const auto peer = static_cast<std::uint32_t>(1 - rank);
        return sends ? HcclSend(data, 1, kFloat, peer, comm, nullptr)
                     : HcclRecv(data, 1, kFloat, peer, comm, nullptr);
      };
      EXPECT_EQ(message(nullptr), HCCL_E_PTR);
      if (rank == 0) std::this_thread::sleep_for(milliseconds(1800));
      EXPECT_EQ(message(&mine), HCCL_SUCCESS) << HcclGetLastErrorText();
    }
  });
  world.expect_usable();
}

// Messages and collectives are ordered separately.
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
