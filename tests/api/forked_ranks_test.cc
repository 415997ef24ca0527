// A program that uses the library forks: its children have their own device memory, may become
// ranks, and change nothing of their parent. Every check compares with values that the program
// wrote. A child ends by _exit with 0, or with the line of the check that failed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl_framework.h"
#include "hccl/hcom.h"
#include "tests/support/api_processes.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kCount = 30000;

#define CHECK(condition) \
  if (!(condition)) return __LINE__ % 256

float* device_floats(std::size_t count) {
  void* memory = nullptr;
  const bool there = aclrtMalloc(&memory, count * 4, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS;
  return there ? static_cast<float*>(memory) : nullptr;
}

bool all_are(const float* data, float value, std::size_t count = kCount) {
  return std::all_of(data, data + count, [=](float each) { return each == value; });
}

int in_child(const std::function<int()>& body, bool with_handlers = true) {
  const pid_t child =
      with_handlers ? ::fork() : static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) ::_exit(body());
  int status = -1;
  if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  return status;
}

/// The ranks contribute 10 and 20: the sum is 30.
int sum_to_30(Board& board, int rank) {
  HcclComm comm = nullptr;
  CHECK(join_public(board, 2, rank, &comm) == HCCL_SUCCESS);
  float* const data = device_floats(kCount);
  CHECK(data != nullptr);
  for (int i = 0; i < 5; ++i) {
    std::fill(data, data + kCount, rank == 0 ? 10.0F : 20.0F);
    CHECK(HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr) ==
          HCCL_SUCCESS);
    CHECK(all_are(data, 30));
  }
  CHECK(aclrtFree(data) == ACL_SUCCESS);
  CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
  return 0;
}

void expect_forked_ranks_sum() {
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] { return sum_to_30(processes.board(), rank); });
  }
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

TEST(ForkedRanks, SumAfterTheirParentAskedForMemoryInfo) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_SUCCESS);
  expect_forked_ranks_sum();
}

TEST(ForkedRanks, SumAfterTheirParentAllocatedAndFreed) {
  float* const data = device_floats(kCount);
  ASSERT_NE(data, nullptr);
  ASSERT_EQ(aclrtFree(data), ACL_SUCCESS);
  void* block = nullptr;
  ASSERT_EQ(HcclMemAlloc(&block, kCount), HCCL_SUCCESS);
  ASSERT_EQ(HcclMemFree(block), HCCL_SUCCESS);
  expect_forked_ranks_sum();
}

TEST(ForkedRanks, SumAfterAndBesideTheirParentsCommunicator) {
  {
    ApiWorld world(2);
    world.expect_usable();
  }
  expect_forked_ranks_sum();
  ApiWorld world(2);
  expect_forked_ranks_sum();
  world.expect_usable();
}

/// One block of each kind of device memory.
struct Blocks {
  float* plain = nullptr;
  float* cached = nullptr;
  float* mapped = nullptr;
  void* host = nullptr;
  aclrtDrvMemHandle physical = nullptr;

  Blocks() {
    plain = device_floats(kCount);
    void* at = nullptr;
    EXPECT_EQ(HcclMemAlloc(&at, kCount * 4), HCCL_SUCCESS);
    cached = static_cast<float*>(at);
    EXPECT_EQ(aclrtReserveMemAddress(&at, 2 * kGranule, 0, nullptr, 1), ACL_SUCCESS);
    mapped = static_cast<float*>(at);
    const aclrtPhysicalMemProp prop = {ACL_MEM_HANDLE_TYPE_NONE,
                                       ACL_MEM_ALLOCATION_TYPE_PINNED,
                                       ACL_HBM_MEM_HUGE,
                                       {0, ACL_MEM_LOCATION_TYPE_DEVICE},
                                       0};
    EXPECT_EQ(aclrtMallocPhysical(&physical, kGranule, &prop, 0), ACL_SUCCESS);
    // The block is mapped, unmapped, and mapped again at another address.
    for (float* to : {mapped + kGranule / 4, mapped}) {
      EXPECT_EQ(aclrtMapMem(to, kGranule, 0, physical, 0), ACL_SUCCESS);
      if (to != mapped) {
        EXPECT_EQ(aclrtUnmapMem(to), ACL_SUCCESS);
      }
    }
    EXPECT_EQ(aclrtMallocHost(&host, 100), ACL_SUCCESS);
    fill(7);
  }
  void fill(float value) const {
    for (float* each : {plain, cached, mapped}) std::fill(each, each + kCount, value);
  }
  bool are(float value) const {
    return all_are(plain, value) && all_are(cached, value) && all_are(mapped, value);
  }
  /// Frees the memory, but leaves the mapping.
  int free() const {
    CHECK(aclrtFree(plain) == ACL_SUCCESS);
    CHECK(HcclMemFree(cached) == HCCL_SUCCESS);
    CHECK(aclrtFreeHost(host) == ACL_SUCCESS);
    return 0;
  }
};

TEST(ForkedRanks, InheritedMemoryIsReadAndWrittenApart) {
  const Blocks blocks;
  const auto work = [&](float before, float after) -> int {
    CHECK(blocks.are(before));
    blocks.fill(after);
    CHECK(blocks.are(after));
    const Blocks own;
    CHECK(own.plain != blocks.plain && own.cached != blocks.cached && own.mapped != blocks.mapped);
    own.fill(before);
    CHECK(blocks.are(after));
    CHECK(blocks.free() == 0);
    CHECK(blocks.free() == 0);  // freeing inherited blocks does nothing
    CHECK(own.are(before));
    CHECK(own.free() == 0);
    CHECK(aclrtFree(own.plain) == ACL_ERROR_RT_PARAM_INVALID);
    return 0;
  };
  EXPECT_EQ(in_child([&]() -> int {
              CHECK(work(7, 9) == 0);
              CHECK(in_child([&] { return work(9, 11); }) == 0);
              CHECK(blocks.are(9));
              return 0;
            }),
            0);
  EXPECT_TRUE(blocks.are(7));
  EXPECT_EQ(blocks.free(), 0);
  EXPECT_EQ(aclrtFree(blocks.plain), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtUnmapMem(blocks.mapped), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreePhysical(blocks.physical), ACL_SUCCESS);
}

TEST(ForkedRanks, HandlesAndTheGroupOfCallsAreTheParents) {
  ApiWorld world(1);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  float value = 5;
  ASSERT_EQ(HcclGroupStart(), HCCL_SUCCESS);
  ASSERT_EQ(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, world.comm(0),
                          nullptr),
            HCCL_SUCCESS);
  EXPECT_EQ(in_child([&]() -> int {
              CHECK(HcclGroupEnd() == HCCL_E_NOT_SUPPORT);
              aclrtStream own = nullptr;
              CHECK(aclrtCreateStream(&own) == ACL_SUCCESS && own != stream);
              CHECK(aclrtSynchronizeStream(own) == ACL_SUCCESS);
              CHECK(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_INVALID_HANDLE);
              CHECK(std::strstr(aclGetRecentErrMsg(), "forked from") != nullptr);
              CHECK(HcclBarrier(world.comm(0), nullptr) == HCCL_E_NOT_SUPPORT);
              CHECK(std::strstr(HcclGetLastErrorText(), "forked from") != nullptr);
              return 0;
            }),
            0);
  EXPECT_EQ(HcclGroupEnd(), HCCL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(value, 5);
}

// Names of communicators, settings of the environment and counts of aclInit start anew.
TEST(ForkedRanks, StartWithAStateOfTheirOwn) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  std::strcpy(config.hcclCommName, "twin");
  ApiWorld world(1, &config);
  ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
  float* const data = device_floats(kCount);
  EXPECT_EQ(in_child([&]() -> int {
              ::setenv("HCCL_DEVICE_MEMORY", "64", 1);
              CHECK(aclInit(nullptr) == ACL_SUCCESS);
              std::size_t free = 0, total = 0;
              CHECK(aclrtSetDevice(0) == ACL_SUCCESS);
              CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total) == ACL_SUCCESS);
              CHECK(total == std::size_t{64} << 20 && free == total);
              HcclRootInfo info;
              CHECK(HcclGetRootInfo(&info) == HCCL_SUCCESS);
              HcclComm comm = nullptr;
              CHECK(HcclCommInitRootInfoConfig(1, &info, 0, &config, &comm) == HCCL_SUCCESS);
              CHECK(comm != world.comm(0));
              CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
              return 0;
            }),
            0);
  world.expect_usable();
  EXPECT_EQ(aclrtFree(data), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

// Two ranks of the parent sum device memory while a child uses its own.
TEST(ForkedRanks, UseTheirMemoryWhileTheParentWorks) {
  ApiWorld world(2);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit([]() -> int {
      for (int i = 0; i < 1000; ++i) {
        float* const own = device_floats(kCount);
        CHECK(own != nullptr);
        std::fill(own, own + kCount, 5.5F);
        CHECK(all_are(own, 5.5F));
        CHECK(aclrtFree(own) == ACL_SUCCESS);
      }
      return 0;
    }());
  }
  std::atomic<std::size_t> wrong{0};
  world.on_all([&](int rank) {
    for (int i = 0; i < 200; ++i) {
      float* const mine = device_floats(kCount);
      std::fill(mine, mine + kCount, static_cast<float>(rank + i));
      ASSERT_EQ(HcclAllReduce(mine, mine, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                              world.comm(rank), nullptr),
                HCCL_SUCCESS);
      wrong += !all_are(mine, static_cast<float>(2 * i + 1));
      EXPECT_EQ(aclrtFree(mine), ACL_SUCCESS);
    }
  });
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(wrong, 0u);
}

/// A child of a busy parent makes every call that may wait for a lock.
int use_everything() {
  float* const data = device_floats(kCount);
  CHECK(data != nullptr);
  std::fill(data, data + kCount, 3.0F);
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream) == ACL_SUCCESS);
  HcclRootInfo info;
  CHECK(HcclGetRootInfo(&info) == HCCL_SUCCESS);
  HcclComm comm = nullptr;
  CHECK(HcclCommInitRootInfo(1, &info, 0, &comm) == HCCL_SUCCESS);
  CHECK(HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream) ==
        HCCL_SUCCESS);
  CHECK(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
  CHECK(all_are(data, 3));
  const Blocks blocks;
  CHECK(blocks.free() == 0);
  CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
  return 0;
}

// At a fork, other threads may hold any lock of the heap, a stream or a communicator.
TEST(ForkedRanks, AreUsableWhateverOtherThreadsDidAtTheFork) {
  ApiWorld world(2);
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t) {
    busy.emplace_back([&] {
      while (!over) {
        float* const data = device_floats(kCount);
        void* block = nullptr;
        EXPECT_EQ(HcclMemAlloc(&block, kCount), HCCL_SUCCESS);
        EXPECT_EQ(HcclMemFree(block), HCCL_SUCCESS);
        EXPECT_EQ(aclrtFree(data), ACL_SUCCESS);
        aclrtStream stream = nullptr;
        EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
        EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
      }
    });
    busy.emplace_back([&, t] {
      for (std::int32_t last = 0; last == 0;) {  // all ranks end with the same operation
        std::int32_t values[2] = {1, t == 0 && over ? 1 : 0};
        ASSERT_EQ(HcclAllReduce(values, values, 2, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM,
                                world.comm(t), nullptr),
                  HCCL_SUCCESS);
        EXPECT_EQ(values[0], 2);
        last = values[1];
      }
    });
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(in_child(use_everything), 0);
  over = true;
  for (auto& each : busy) each.join();
  world.expect_usable();
}

// No handler of pthread_atfork runs in a raw clone, so the child still has all of its parent's
// state.
TEST(ForkedRanks, ARawCopyIsRefusedAndHarmless) {
  ApiWorld world(1);
  float* const data = device_floats(kCount);
  ASSERT_NE(data, nullptr);
  std::fill(data, data + kCount, 4.0F);
  const auto work = [&]() -> int {
    void* at = nullptr;
    CHECK(aclrtMalloc(&at, 4, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK(std::strstr(aclGetRecentErrMsg(), "clone") != nullptr);
    CHECK(aclrtFree(data) == ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK(HcclMemAlloc(&at, 4) == HCCL_E_NOT_SUPPORT);
    CHECK(HcclAllReduce(data, data, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, world.comm(0),
                        nullptr) == HCCL_E_NOT_SUPPORT);
    CHECK(std::strstr(HcclGetLastErrorText(), "clone") != nullptr);
    CHECK(HcomAllReduce("t", data, data, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, "g", nullptr) ==
          HCCL_E_NOT_SUPPORT);
    CHECK(HcclCommDestroy(world.comm(0)) == HCCL_E_NOT_SUPPORT);
    std::exit(0);  // runs the library's exit handlers
  };
  EXPECT_EQ(in_child(work, false), 0);
  world.expect_usable();
  EXPECT_TRUE(all_are(data, 4));
  EXPECT_EQ(aclrtFree(data), ACL_SUCCESS);
}

// First a child calls exec, then a rank. The other rank's error names that rank.
TEST(ForkedRanks, MayExec) {
  Processes processes;
  Board& board = processes.board();
  const auto work = [&](int rank) -> int {
    HcclComm comm = nullptr;
    CHECK(join_public(board, 2, rank, &comm) == HCCL_SUCCESS);
    float* const data = device_floats(kCount);
    CHECK(data != nullptr);
    HcclResult result = HCCL_SUCCESS;
    for (int i = 0; result == HCCL_SUCCESS; ++i) {
      if (i == 1) CHECK(std::system("true") == 0);
      if (i == 2) CHECK(in_child([] { return ::execlp("true", "true", nullptr); }) == 0);
      if (i == 3 && rank == 1) return ::execlp("sleep", "sleep", "60", nullptr);
      std::fill(data, data + kCount, 1.0F);
      result =
          HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
      CHECK(result != HCCL_SUCCESS || all_are(data, 2));
    }
    CHECK(result == HCCL_E_REMOTE);
    CHECK(std::strstr(HcclGetLastErrorText(), "rank 1") != nullptr);
    return 0;
  };
  for (int rank = 0; rank < 2; ++rank) processes.start([&, rank] { return work(rank); });
  EXPECT_EQ(processes.wait(0), 0);
}

}  // namespace
}  // namespace hccl::testing
