// One rank has a limit on addresses, data, the size of files or descriptors, with many values:
// either all ranks work, or all end with a text that names the rank or the limit.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "hccl/acl/acl.h"
#include "tests/support/api_processes.h"

namespace hccl::testing {
namespace {

constexpr int kSize = 3;
constexpr rlim_t kMiB = rlim_t{1} << 20;

struct Limit {
  int resource;
  rlim_t value;  // addresses, data and descriptors are counted beyond those in use
  const char* shown;
};

rlim_t used_by_this_process(int resource) {
  rlim_t pages = 0, other = 0, data = 0;
  std::ifstream("/proc/self/statm") >> pages >> other >> other >> other >> other >> data;
  if (resource == RLIMIT_AS) return pages * 4096;
  if (resource == RLIMIT_DATA) return data * 4096;
  if (resource == RLIMIT_FSIZE) return 0;
  return static_cast<rlim_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}) - 1);
}

rlim_t resident() {
  rlim_t size = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * 4096;
}

HcclResult join(Board& board, int rank, HcclComm* comm) {
  HcclRootInfo info;
  if (rank == 0) {
    const HcclResult made = HcclGetRootInfo(&info);
    board.finish = made != HCCL_SUCCESS;
    if (made != HCCL_SUCCESS) return made;
    std::memcpy(board.info.data(), info.internal, board.info.size());
    board.open = true;
  }
  if (!eventually([&] { return board.open || board.finish; })) return HCCL_E_TIMEOUT;
  if (board.finish) return HCCL_E_NOT_FOUND;
  std::memcpy(info.internal, board.info.data(), board.info.size());
  return HcclCommInitRootInfo(kSize, &info, static_cast<std::uint32_t>(rank), comm);
}

// Sums private memory, and sends device memory, if this rank has any, from rank 0 to all.
HcclResult use(HcclComm comm, int rank) {
  std::vector<std::int32_t> mine(5000, rank);
  HcclResult result = HcclAllReduce(mine.data(), mine.data(), mine.size(), HCCL_DATA_TYPE_INT32,
                                    HCCL_REDUCE_SUM, comm, nullptr);
  if (result != HCCL_SUCCESS) return result;
  if (mine != std::vector<std::int32_t>(5000, kSize * (kSize - 1) / 2)) return HCCL_E_INTERNAL;
  constexpr std::size_t kCount = 100'000;
  std::vector<std::int32_t> own(kCount);
  void* memory = nullptr;
  const bool device = aclrtMalloc(&memory, kCount * 4, ACL_MEM_MALLOC_HUGE_FIRST) == 0;
  auto* const data = device ? static_cast<std::int32_t*>(memory) : own.data();
  std::fill_n(data, kCount, rank + 7);
  result = HcclBroadcast(data, kCount, HCCL_DATA_TYPE_INT32, 0, comm, nullptr);
  if (result != HCCL_SUCCESS) return result;
  return std::count(data, data + kCount, 7) == kCount ? HCCL_SUCCESS : HCCL_E_INTERNAL;
}

// Returns whether all ranks worked.
bool try_with(const Limit& limit, int scarce, const char* transport) {
  SCOPED_TRACE(std::string(transport) + ", " + limit.shown + " " + std::to_string(limit.value) +
               " on rank " + std::to_string(scarce));
  Processes ranks;
  std::vector<int> started;
  for (int rank = 0; rank < kSize; ++rank) {
    started.push_back(ranks.start([&, rank] {
      ::signal(SIGXFSZ, SIG_DFL);
      ::closefrom(3);  // so that the limit leaves the same number of descriptors everywhere
      ::setenv("HCCL_TRANSPORT", transport, 1);
      const rlim_t most = limit.value + used_by_this_process(limit.resource);
      const rlimit lowered{most, most};
      if (rank == scarce &&
          ::setrlimit(static_cast<__rlimit_resource>(limit.resource), &lowered) != 0)
        return 1;
      HcclComm comm = nullptr;
      HcclResult result = join(ranks.board(), rank, &comm);
      if (result == HCCL_SUCCESS) result = use(comm, rank);
      const bool good = result == HCCL_SUCCESS;
      ranks.board().first[static_cast<std::size_t>(rank)].set(
          good ? Status() : Status(static_cast<Code>(result), HcclGetLastErrorText()));
      // The root is in rank 0's process, which must stay until the root has informed the other
      // ranks.
      eventually([&] {
        return std::all_of(ranks.board().first.begin(), ranks.board().first.begin() + kSize,
                           [](const Outcome& each) { return each.known.load(); });
      });
      if (comm != nullptr) HcclCommDestroy(comm);
      return 0;
    }));
  }
  int worked = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(ranks.wait(started[static_cast<std::size_t>(rank)]), 0) << "rank " << rank;
    const Outcome& end = ranks.board().first[static_cast<std::size_t>(rank)];
    const bool good = end.code == Code::kSuccess;
    worked += good ? 1 : 0;
    if (good || ranks.board().finish) continue;
    const std::string text = end.message(), number = std::to_string(scarce);
    EXPECT_TRUE(text.find("rank " + number) != text.npos || text.find("ulimit") != text.npos ||
                text.find("absent: " + number) != text.npos)
        << "rank " << rank << ": " << text;
  }
  EXPECT_TRUE(worked == 0 || worked == kSize) << worked << " of the ranks worked";
  return worked == kSize;
}

// Tries both transports; the limit applies to rank 0, which makes the shared memory, or to rank 2.
void sweep(int resource, const char* shown, const std::vector<rlim_t>& values) {
  for (const char* const transport : {"auto", "shm"}) {
    bool last = false;
    for (const rlim_t value : values) {
      for (const int scarce : {0, 2}) last = try_with({resource, value, shown}, scarce, transport);
    }
    EXPECT_TRUE(last) << shown << ": the largest limit is enough";
  }
}

// Each of the three heaps has 256 MiB (HCCL_DEVICE_MEMORY). Without CMA, ranks that disagree about
// reachable memory would choose different algorithms.
TEST(Limits, OfAddresses) {
  sweep(RLIMIT_AS, "ulimit -v",
        {16 * kMiB, 64 * kMiB, 200 * kMiB, 300 * kMiB, 400 * kMiB, 500 * kMiB, 540 * kMiB,
         600 * kMiB, 700 * kMiB, 800 * kMiB, 1600 * kMiB});
}

TEST(Limits, OfData) {
  sweep(RLIMIT_DATA, "ulimit -d", {2 * kMiB, 8 * kMiB, 12 * kMiB, 40 * kMiB, 400 * kMiB});
}

TEST(Limits, OfTheSizeOfFiles) {
  sweep(RLIMIT_FSIZE, "ulimit -f", {0, 1, 4096, 3 * kMiB, 16 * kMiB, 255 * kMiB, 512 * kMiB});
}

// Tries each number of descriptors, so that each open() of the library is once the first to fail.
TEST(Limits, OfDescriptors) {
  std::vector<rlim_t> values(24);
  std::iota(values.begin(), values.end(), 1);
  values.push_back(40);
  sweep(RLIMIT_NOFILE, "ulimit -n", values);
}

// mlockall() locks all later mappings. The heaps have addresses for 256 MiB each, but get memory
// only for what is allocated.
TEST(Limits, AProgramThatLocksItsMemory) {
  Processes ranks;
  std::vector<int> started;
  for (int rank = 0; rank < kSize; ++rank) {
    started.push_back(ranks.start([&, rank] {
      if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 0;  // not permitted
      const rlim_t before = resident();
      HcclComm comm = nullptr;
      if (join(ranks.board(), rank, &comm) != HCCL_SUCCESS) return 1;
      if (use(comm, rank) != HCCL_SUCCESS) return 2;
      const bool small = resident() < before + 200 * kMiB;
      return HcclCommDestroy(comm) == HCCL_SUCCESS && small ? 0 : 3;
    }));
  }
  for (const int each : started) EXPECT_EQ(ranks.wait(each), 0);
}

void* join_and_use(void* arg) {
  HcclRootInfo info;
  HcclComm comm = nullptr;
  float value = 1;
  const bool good = HcclGetRootInfo(&info) == HCCL_SUCCESS &&
                    HcclCommInitRootInfo(1, &info, 0, &comm) == HCCL_SUCCESS &&
                    HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm,
                                  nullptr) == HCCL_SUCCESS &&
                    HcclCommDestroy(comm) == HCCL_SUCCESS;
  *static_cast<bool*>(arg) = good;
  return nullptr;
}

#ifndef __SANITIZE_ADDRESS__  // which needs larger stacks
TEST(Limits, OfStacks) {
  Processes ranks;
  const int process = ranks.start([] {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 48 << 10);
    pthread_t thread{};
    bool good = false;
    if (pthread_create(&thread, &small, join_and_use, &good) != 0) return 1;
    pthread_join(thread, nullptr);
    return good ? 0 : 2;
  });
  EXPECT_EQ(ranks.wait(process), 0);
}
#endif

}  // namespace
}  // namespace hccl::testing
