// Programs that close descriptors: 0 to 2 before they join, or those of the library. HCCL_TRANSPORT
// chooses the transport.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "hccl/acl/acl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_processes.h"
#include "tests/support/folder.h"

namespace hccl::testing {
namespace {

std::string target(int fd) {
  char path[256] = {};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, 255);
  return {path, length < 0 ? 0 : static_cast<std::size_t>(length)};
}

std::vector<int> open_descriptors() {
  std::vector<int> all;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != ::dirfd(folder)) all.push_back(fd);
  }
  ::closedir(folder);
  return all;
}

HcclResult sum(HcclComm comm, float* data, std::size_t count) {
  return HcclAllReduce(data, data, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
}

// A daemon prints without descriptors 1 and 2: its text may be lost, but must not reach the data
// that the ranks reduce.
int print_without_descriptors(Board& board, int rank) {
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  constexpr std::size_t kCount = 4096;
  void* memory = nullptr;  // the program uses device memory even before it joins
  if (aclrtSetDevice(rank) != 0 || aclrtMalloc(&memory, kCount * 4, ACL_MEM_MALLOC_HUGE_FIRST) != 0)
    return 1;
  for (const int fd : {0, 1, 2}) {
    if (!target(fd).empty()) return 2;
  }
  HcclComm comm = nullptr;
  if (join_public(board, 2, rank, &comm) != HCCL_SUCCESS) return 3;
  for (const int fd : {0, 1, 2}) {
    if (target(fd) != "/dev/null") return 4;
  }
  auto* const data = static_cast<float*>(memory);
  const std::string text = "what the program says, where its starter has closed its output\n";
  for (int turn = 0; turn < 20; ++turn) {
    for (std::size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(rank + 1);
    for (const int fd : {1, 2}) {
      if (::write(fd, text.data(), text.size()) < 0) return 5;
    }
    if (sum(comm, data, kCount) != HCCL_SUCCESS) return 6;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (data[i] != 3) return 7;
    }
  }
  return HcclCommDestroy(comm) == HCCL_SUCCESS ? 0 : 8;
}

TEST(Descriptors, OfStandardFilesAreTheProgramsAlsoWhereClosed) {
  Processes ranks;
  int started[2];
  for (const int rank : {0, 1}) {
    started[rank] =
        ranks.start([&ranks, rank] { return print_without_descriptors(ranks.board(), rank); });
  }
  for (const int process : started) EXPECT_EQ(ranks.wait(process), 0);
}

constexpr std::size_t kBytes = std::size_t{4} << 20;

// Puts this rank's first failure on the board; until then all sums must be right.
int sum_until_failure(Board& board, int rank, HcclComm comm) {
  Outcome& outcome = board.first[static_cast<std::size_t>(rank)];
  const Deadline end = Deadline::after(std::chrono::seconds(40));
  while (!end.expired()) {
    float value = static_cast<float>(rank + 1);
    const HcclResult result = sum(comm, &value, 1);
    if (result != HCCL_SUCCESS) {
      outcome.set(Status(static_cast<Code>(result), HcclGetLastErrorText()));
      return 0;
    }
    if (value != 3) return 20;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 21;
}

// Closes all open descriptors, as closefrom() does; if `replaced`, opens one file in their place.
int take_all(Board& board, int rank, const std::string& path, bool replaced) {
  HcclComm comm = nullptr;
  if (join_public(board, 2, rank, &comm) != HCCL_SUCCESS) return 1;
  void* memory = nullptr;
  if (aclrtSetDevice(rank) != 0 || aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST) != 0)
    return 2;
  float value = static_cast<float>(rank + 1);
  if (sum(comm, &value, 1) != HCCL_SUCCESS || value != 3) return 3;
  const std::vector<int> all = open_descriptors();
  const int file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  for (const int fd : all) replaced ? ::dup2(file, fd) : ::close(fd);
  if (const int wrong = sum_until_failure(board, rank, comm); wrong != 0) return wrong;
  if (aclrtFree(memory) != 0 || HcclMemTrim() != HCCL_SUCCESS) return 4;
  HcclCommDestroy(comm);
  for (const int fd : all) {
    if (replaced && target(fd) != path) return 5;  // the library has closed the program's file
  }
  return 0;
}

TEST(Descriptors, TheProgramClosesAllOrPutsAFileInTheirPlace) {
  ::setenv("HCCL_PEER_TIMEOUT", "10", 1);
  for (const auto& [taker, replaced] :
       {std::pair(0, false), std::pair(0, true), std::pair(1, false), std::pair(1, true)}) {
    SCOPED_TRACE("rank " + std::to_string(taker) + (replaced ? ", a file" : ", closed"));
    const Folder folder;
    const std::string path = folder.write("mine", std::string(kBytes, 'x'));
    Processes ranks;
    const int taken = ranks.start([&, taker = taker, replaced = replaced] {
      return take_all(ranks.board(), taker, path, replaced);
    });
    const int other = ranks.start([&, taker = taker] {
      HcclComm comm = nullptr;
      const int rank = 1 - taker;
      if (join_public(ranks.board(), 2, rank, &comm) != HCCL_SUCCESS) return 1;
      const int wrong = sum_until_failure(ranks.board(), rank, comm);
      HcclCommDestroy(comm);
      return wrong;
    });
    EXPECT_EQ(ranks.wait(taken), 0);
    EXPECT_EQ(ranks.wait(other), 0);
    EXPECT_TRUE(folder.read("mine") == std::string(kBytes, 'x')) << "it changed the program's file";
    const auto& told = ranks.board().first;
    EXPECT_NE(told[static_cast<std::size_t>(taker)].message().find("has closed a descriptor"),
              std::string::npos)
        << told[static_cast<std::size_t>(taker)].message();
    EXPECT_NE(
        told[static_cast<std::size_t>(1 - taker)].message().find("rank " + std::to_string(taker)),
        std::string::npos)
        << told[static_cast<std::size_t>(1 - taker)].message();
  }
}

}  // namespace
}  // namespace hccl::testing
