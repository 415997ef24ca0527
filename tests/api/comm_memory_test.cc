// Memory ranges and symmetric windows.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing {
namespace {

// This test must run first: both handles are then the first of their tables.
TEST(CommMemory, AWindowIsNoRequest) {
  ApiWorld world(1);
  std::vector<char> space(1000);
  HcclCommSymWindow window = nullptr;
  OK(HcclCommSymWinRegister(world.comm(0), space.data(), space.size(), &window, 1));
  HcclRequest request = nullptr;
  OK(HcclSubmit([](void*) { return HCCL_SUCCESS; }, nullptr, false, nullptr, nullptr, &request));
  bool done = false;
  EXPECT_EQ(HcclRequestTest(static_cast<HcclRequest>(window), &done), HCCL_E_PARA);
  EXPECT_EQ(HcclCommSymWinDeregister(request), HCCL_E_PARA);
  OK(HcclRequestWait(request, 0, nullptr));
  OK(HcclRequestFree(request));
  OK(HcclCommSymWinDeregister(window));
}

TEST(CommMemory, RangesAndTheirActiveMemory) {
  ApiWorld world(1), other(1);
  const HcclComm comm = world.comm(0);
  std::vector<char> space(1000);
  char* const p = space.data();
  void* const handle = p;  // any address: the library does not use it
  const auto activate = [&](char* at, std::size_t size) {
    return HcclCommActivateCommMemory(comm, at, size, 0, handle, 0);
  };
  EXPECT_EQ(activate(p, 10), HCCL_E_PARA) << "no range is set";
  OK(HcclCommSetMemoryRange(comm, p + 100, 200, 0, 0));
  struct Range {
    std::size_t at, size;
    HcclResult expected;
  };
  for (const Range& range : std::vector<Range>{{100, 200, HCCL_E_PARA},
                                               {0, 101, HCCL_E_PARA},
                                               {299, 1, HCCL_E_PARA},
                                               {150, 10, HCCL_E_PARA},
                                               {0, 1000, HCCL_E_PARA},
                                               {0, 100, HCCL_SUCCESS},
                                               {300, 100, HCCL_SUCCESS}}) {
    EXPECT_EQ(HcclCommSetMemoryRange(comm, p + range.at, range.size, 0, 0), range.expected)
        << range.at;
  }
  EXPECT_EQ(HcclCommSetMemoryRange(other.comm(0), p + 100, 200, 0, 0), HCCL_SUCCESS);
  EXPECT_EQ(activate(p + 90, 20), HCCL_E_PARA) << "in two ranges";
  EXPECT_EQ(activate(p + 390, 11), HCCL_E_PARA) << "over the end";
  EXPECT_EQ(activate(p + 500, 10), HCCL_E_PARA) << "outside";
  EXPECT_EQ(activate(p + 100, 50), HCCL_SUCCESS);
  EXPECT_EQ(activate(p + 150, 50), HCCL_SUCCESS);
  EXPECT_EQ(activate(p + 140, 20), HCCL_E_PARA);
  EXPECT_EQ(activate(p + 100, 50), HCCL_E_PARA);
  EXPECT_EQ(HcclCommUnsetMemoryRange(comm, p + 100), HCCL_E_PARA) << "it is active";
  EXPECT_EQ(HcclCommDeactivateCommMemory(comm, p + 110), HCCL_E_PARA) << "not the start";
  EXPECT_EQ(HcclCommDeactivateCommMemory(comm, p + 100), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDeactivateCommMemory(comm, p + 100), HCCL_E_PARA);
  EXPECT_EQ(HcclCommUnsetMemoryRange(comm, p + 100), HCCL_E_PARA);
  EXPECT_EQ(HcclCommDeactivateCommMemory(comm, p + 150), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommUnsetMemoryRange(comm, p + 110), HCCL_E_PARA) << "not the start";
  EXPECT_EQ(HcclCommUnsetMemoryRange(comm, p + 100), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommUnsetMemoryRange(comm, p + 100), HCCL_E_PARA);
  EXPECT_EQ(HcclCommUnsetMemoryRange(other.comm(0), p + 100), HCCL_SUCCESS);
}

TEST(CommMemory, OperationsOnActiveMemoryOfAnyKind) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::vector<std::int32_t> data(4096, rank + 1);
    const std::size_t bytes = data.size() * sizeof data[0];
    OK(HcclCommSetMemoryRange(comm, data.data(), bytes, 0, 0));
    OK(HcclCommActivateCommMemory(comm, data.data(), bytes, 0, &data, 0));
    HcclCommSymWindow window = nullptr;
    OK(HcclCommSymWinRegister(comm, data.data(), bytes, &window, 1));
    OK(HcclAllReduce(data.data(), data.data(), data.size(), HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM,
                     comm, nullptr));
    EXPECT_EQ(data, std::vector<std::int32_t>(4096, 3));
    EXPECT_EQ(HcclCommSymWinDeregister(window), HCCL_SUCCESS);
    EXPECT_EQ(HcclCommSymWinDeregister(window), HCCL_E_PARA);
    EXPECT_EQ(HcclCommDeactivateCommMemory(comm, data.data()), HCCL_SUCCESS);
    EXPECT_EQ(HcclCommUnsetMemoryRange(comm, data.data()), HCCL_SUCCESS);
  });
}

TEST(CommMemory, AWindowIsFoundByWhatIsInIt) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::vector<char> space(3000);
    HcclCommSymWindow one = nullptr, two = nullptr, found = nullptr;
    OK(HcclCommSymWinRegister(comm, space.data(), 1000, &one, 1));
    OK(HcclCommSymWinRegister(comm, space.data() + 1000 + rank, 500, &two, 1));
    EXPECT_NE(one, two);
    std::size_t offset = 7;
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data() + 10, 990, &found, &offset), HCCL_SUCCESS);
    EXPECT_EQ(found, one);
    EXPECT_EQ(offset, 10u);
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data() + 1100, 1, &found, &offset), HCCL_SUCCESS);
    EXPECT_EQ(found, two);
    EXPECT_EQ(offset, 100u - static_cast<std::size_t>(rank));
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data() + 10, 991, &found, &offset), HCCL_E_NOT_FOUND);
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data() + 2500, 1, &found, &offset), HCCL_E_NOT_FOUND);
    EXPECT_EQ(HcclCommSymWinDeregister(one), HCCL_SUCCESS);
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data(), 1, &found, &offset), HCCL_E_NOT_FOUND);
    EXPECT_EQ(HcclCommSymWinGet(comm, space.data() + 1100, 1, &found, &offset), HCCL_SUCCESS);
  });
}

TEST(CommMemory, RanksMustAgreeOnWindows) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::vector<char> space(3000);
    HcclCommSymWindow window = nullptr, other = nullptr;
    EXPECT_EQ(HcclCommSymWinRegister(comm, space.data(), rank == 0 ? 1000 : 1001, &window, 1),
              HCCL_E_PARA);
    EXPECT_NE(std::strstr(HcclGetLastErrorText(), "size is 100"), nullptr)
        << HcclGetLastErrorText();
    EXPECT_EQ(window, nullptr);
    OK(HcclCommSymWinRegister(comm, space.data(), 1000, &window, 1));
    OK(HcclCommSymWinRegister(comm, space.data() + 1000, 1000, &other, 1));
    EXPECT_EQ(HcclCommSymWinDeregister(rank == 0 ? window : other), HCCL_E_PARA);
    HcclCommSymWindow third = nullptr;
    EXPECT_EQ(rank == 0 ? HcclCommSymWinDeregister(window)
                        : HcclCommSymWinRegister(comm, space.data(), 1, &third, 1),
              HCCL_E_PARA);
    EXPECT_EQ(HcclCommSymWinDeregister(window), HCCL_SUCCESS);
    EXPECT_EQ(HcclCommSymWinDeregister(other), HCCL_SUCCESS);
  });
  world.expect_usable();
}

// The ranks that wait in the same registration get the error, and do not wait any longer.
TEST(CommMemory, ARefusedWindowIsToldToTheOtherRanks) {
  for (const bool by_size : {true, false}) {
    ApiWorld world(3);
    world.on_all([&](int rank) {
      const bool wrong = rank == 1;
      std::vector<char> space(100);
      HcclCommSymWindow window = nullptr;
      EXPECT_EQ(HcclCommSymWinRegister(world.comm(rank), space.data(), wrong && by_size ? 0 : 100,
                                       &window, wrong && !by_size ? 2 : 1),
                HCCL_E_PARA);
      EXPECT_NE(std::strstr(HcclGetLastErrorText(), by_size ? "size is 0" : "flag is 2"), nullptr)
          << HcclGetLastErrorText();
      EXPECT_EQ(window, nullptr);
    });
  }
}

TEST(CommMemory, WindowsEndWithTheirCommunicator) {
  HcclCommSymWindow window = nullptr;
  std::vector<char> space(10);
  {
    ApiWorld world(1);
    OK(HcclCommSymWinRegister(world.comm(0), space.data(), 10, &window, 1));
  }
  EXPECT_EQ(HcclCommSymWinDeregister(window), HCCL_E_PARA);
}

}  // namespace
}  // namespace hccl::testing
