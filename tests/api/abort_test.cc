// Abort at random moments: every operation on every rank ends with an error within a second, and
// destroying takes no longer. HCCL_TRANSPORT chooses the transport, HCCL_TEST_ABORTS the number of
// aborts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"
#include "tests/support/load.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kSize = 3;
constexpr std::size_t kMost = 4 << 14;
// The promise is one second; a loaded machine may need more.
constexpr milliseconds kSoon{3000};

HcclComm make(ApiWorld& world, int rank, std::uint64_t number) {
  std::uint32_t ranks[kSize] = {0, 1, 2};
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm made = nullptr;
  EXPECT_EQ(HcclCreateSubCommConfig(&world.comm(rank), kSize, ranks, number,
                                    static_cast<std::uint32_t>(rank), &config, &made),
            HCCL_SUCCESS)
      << HcclGetLastErrorText();
  return made;
}

/// The operation of number `seed`, the same on all ranks.
HcclResult operate(std::uint64_t seed, std::vector<float>& data, HcclComm comm) {
  std::mt19937_64 random(seed);
  const std::uint64_t count = std::uint64_t{1} << random() % 15;
  float* const at = data.data();
  switch (random() % 4) {
    case 0:
      return HcclAllReduce(at, at, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
    case 1:
      return HcclBroadcast(at, count, HCCL_DATA_TYPE_FP32, 1, comm, nullptr);
    case 2:
      return HcclAllGather(at, at + kMost / 4, count, HCCL_DATA_TYPE_FP32, comm, nullptr);
    default:
      return HcclBarrier(comm, nullptr);
  }
}

TEST(Abort, EndsEverythingAtAnyMoment) {
  const char* const wanted = std::getenv("HCCL_TEST_ABORTS");
  const int times = wanted == nullptr ? 100 : std::atoi(wanted);
  ApiWorld world(kSize);
  std::vector<HcclComm> comms(kSize);
  std::mt19937_64 random(7);
  Clock::duration slowest{0};
  const Load load;
  for (int time = 0; time < times; ++time) {
    const auto number = static_cast<std::uint64_t>(time);
    world.on_all(
        [&](int rank) { comms[static_cast<std::size_t>(rank)] = make(world, rank, number); });
    // Sometimes one rank makes no call, and the others wait for it.
    const int absent = random() % 3 == 0 ? static_cast<int>(random() % kSize) : -1;
    const HcclComm chosen = comms[random() % kSize];
    const microseconds moment(random() % 1500);
    std::atomic<Clock::time_point> aborted{Clock::time_point::max()};
    std::thread aborter([&, chosen, moment] {
      std::this_thread::sleep_for(moment);
      EXPECT_EQ(HcclCommAbort(chosen, "a random moment"), HCCL_SUCCESS);
      aborted = Clock::now();
    });
    std::vector<Clock::duration> took(kSize);
    world.on_all([&](int rank) {
      const HcclComm comm = comms[static_cast<std::size_t>(rank)];
      std::vector<float> data(kMost, 1);
      HcclResult result = HCCL_SUCCESS;
      for (std::uint64_t i = 0; rank != absent && result == HCCL_SUCCESS; ++i) {
        result = operate(number * 1000003 + i, data, comm);
      }
      if (rank != absent) {
        EXPECT_EQ(result, HCCL_E_UNAVAIL) << HcclGetLastErrorText();
        EXPECT_NE(std::string(HcclGetLastErrorText()).find("a random moment"), std::string::npos)
            << HcclGetLastErrorText();
      }
      while (aborted.load() == Clock::time_point::max())
        std::this_thread::sleep_for(microseconds(100));
      // While the aborting thread uses the communicator, destroying it is refused at once.
      HcclResult destroyed = HCCL_E_AGAIN;
      while ((destroyed = HcclCommDestroy(comm)) == HCCL_E_AGAIN) std::this_thread::yield();
      EXPECT_EQ(destroyed, HCCL_SUCCESS) << HcclGetLastErrorText();
      took[static_cast<std::size_t>(rank)] = Clock::now() - aborted.load();
    });
    aborter.join();
    slowest = std::max(slowest, *std::max_element(took.begin(), took.end()));
    ASSERT_LT(slowest, load.allows(kSoon)) << "abort " << time;
  }
  RecordProperty("slowest_ms",
                 static_cast<int>(std::chrono::duration_cast<milliseconds>(slowest).count()));
  std::printf("%d aborts, the slowest rank was done after %.1f ms\n", times,
              std::chrono::duration<double, std::milli>(slowest).count());
  world.expect_usable();
}

}  // namespace
}  // namespace hccl::testing
