// At the memory limit of a cgroup, allocations are refused with a code, and the kernel kills no
// process. The test needs a memory controller and the right to make a cgroup.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

namespace hccl::testing {
namespace {

constexpr std::uint32_t kProcesses = 2;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLimit = 200 * kMiB;

/// A cgroup below the test's own, of version 1 or 2, whichever has the memory controller.
class Cgroup {
 public:
  explicit Cgroup(std::size_t limit) {
    const std::string name = "/hccl-test-" + std::to_string(::getpid());
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line) && path_.empty();) {
      const std::string own = line.substr(line.rfind(':') + 1);
      const bool first = line.find(":memory:") != std::string::npos;
      if (!first && !line.starts_with("0::")) continue;
      const std::string top = first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
      const std::string limits = first ? "/memory.limit_in_bytes" : "/memory.max";
      for (const std::string& parent : {top + own, top}) {
        std::error_code error;
        if (!std::filesystem::create_directory(parent + name, error)) continue;
        // The kernel makes this file only if there is a memory controller.
        if (std::filesystem::exists(parent + name + limits) &&
            write(parent + name + limits, std::to_string(limit))) {
          path_ = parent + name;
          break;
        }
        std::filesystem::remove(parent + name, error);
      }
    }
  }
  ~Cgroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  bool made() const { return !path_.empty(); }
  bool enter() const { return write(path_ + "/cgroup.procs", std::to_string(::getpid())); }

 private:
  static bool write(const std::string& path, const std::string& text) {
    return static_cast<bool>(std::ofstream(path) << text << std::flush);
  }
  std::string path_;
};

struct Board {
  std::atomic<bool> open{false};
  HcclRootInfo info{};
  std::array<std::array<char, 512>, kProcesses> why{};
};

/// Allocates piece by piece all memory that is left; returns the text of the refusal.
std::string fill(std::vector<void*>& pieces) {
  for (std::size_t bytes = 16 * kMiB;;) {
    void* piece = nullptr;
    const aclError result = aclrtMalloc(&piece, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
    if (result == ACL_SUCCESS) {
      std::memset(piece, 1, bytes);
      pieces.push_back(piece);
    } else if (result != ACL_ERROR_RT_MEMORY_ALLOCATION) {
      return "code " + std::to_string(result);
    } else {
      bytes /= 2;
      if (bytes < kMiB) return aclGetRecentErrMsg();
    }
  }
}

int run_rank(Board& board, const Cgroup& cgroup, std::uint32_t rank) {
  const auto fails = [&](int place, const std::string& why) {
    std::snprintf(board.why[rank].data(), board.why[rank].size(), "%s", why.c_str());
    return place;
  };
  if (!cgroup.enter()) return fails(1, "the cgroup cannot be entered");
  if (rank == 0) {
    if (HcclGetRootInfo(&board.info) != HCCL_SUCCESS) return fails(2, HcclGetLastErrorText());
    board.open = true;
  }
  while (!board.open) std::this_thread::yield();
  HcclComm comm = nullptr;
  if (HcclCommInitRootInfo(kProcesses, &board.info, rank, &comm) != HCCL_SUCCESS) {
    return fails(3, HcclGetLastErrorText());
  }
  // Both ranks allocate at the same time.
  std::vector<void*> pieces;
  const std::string text = fill(pieces);
  if (text.find("are left of the 209715200 bytes of the memory limit of cgroup") == text.npos) {
    return fails(4, text);
  }
  if (pieces.size() < 2) return fails(5, "too little could be had");
  void* block = nullptr;
  if (HcclMemAlloc(&block, 150 * kMiB) != HCCL_E_OOM) return fails(6, HcclGetLastErrorText());
  // Smaller requests still succeed, and freed memory can be allocated again.
  aclrtFree(pieces.back());
  pieces.pop_back();
  if (HcclMemAlloc(&block, 256 << 10) != HCCL_SUCCESS) return fails(7, HcclGetLastErrorText());
  auto* const number = static_cast<std::int32_t*>(block);
  *number = 1;
  if (HcclAllReduce(number, number, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, nullptr) !=
          HCCL_SUCCESS ||
      *number != kProcesses) {
    return fails(8, HcclGetLastErrorText());
  }
  return HcclCommDestroy(comm) == HCCL_SUCCESS ? 0 : fails(9, HcclGetLastErrorText());
}

TEST(Cgroup, AtItsLimitCallsAreRefusedAndNobodyIsKilled) {
  const Cgroup cgroup(kLimit);
  ASSERT_TRUE(cgroup.made()) << "no memory controller, or no right to make a cgroup";
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (page) Board;
  std::array<pid_t, kProcesses> ranks{};
  for (std::uint32_t rank = 0; rank < kProcesses; ++rank) {
    ranks[rank] = ::fork();
    if (ranks[rank] == 0) ::_exit(run_rank(*board, cgroup, rank));
  }
  for (std::uint32_t rank = 0; rank < kProcesses; ++rank) {
    int status = -1;
    EXPECT_EQ(::waitpid(ranks[rank], &status, 0), ranks[rank]);
    EXPECT_FALSE(WIFSIGNALED(status)) << "rank " << rank << ": signal " << WTERMSIG(status);
    EXPECT_EQ(status, 0) << "rank " << rank << ": " << board->why[rank].data();
  }
}

}  // namespace
}  // namespace hccl::testing
