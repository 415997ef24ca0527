// A rank leaves while another rank of its process stays. Any allocation of leaving may fail: the
// other ranks, here and in another process, learn at their next operation that the rank is gone,
// and no rank hangs or crashes. Needs failing_malloc loaded before the program.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <thread>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

namespace hccl::testing {
namespace {

constexpr std::uint32_t kSize = 3;
constexpr std::uint32_t kLeaves = 1;  // this rank shares a process with rank 2
constexpr int kAllocations = 500;     // more than the allocations of leaving

void (*fail_allocation)(long) = nullptr;
bool (*has_failed)() = nullptr;

/// The memory that the processes of a trial share with the test.
struct Board {
  HcclRootInfo info{};
  std::atomic<bool> left{false};
  bool failed_allocation = false;
  std::array<HcclResult, kSize> joined{};
  std::array<HcclResult, kSize> last{};  // the leaving rank's code comes from HcclCommDestroy
  std::array<char[512], kSize> text{};
};

void run_rank(Board& board, std::uint32_t rank, long number) {
  HcclComm comm = nullptr;
  board.joined[rank] = HcclCommInitRootInfo(kSize, &board.info, rank, &comm);
  if (board.joined[rank] == HCCL_SUCCESS) board.joined[rank] = HcclBarrier(comm, nullptr);
  if (board.joined[rank] != HCCL_SUCCESS) return;
  if (rank == kLeaves) {
    fail_allocation(number);
    board.last[rank] = HcclCommDestroy(comm);
    board.failed_allocation = has_failed();
    fail_allocation(-1);
    board.left = true;
    return;
  }
  while (!board.left) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  board.last[rank] = HcclBarrier(comm, nullptr);
  std::snprintf(board.text[rank], sizeof board.text[rank], "%s", HcclGetLastErrorText());
  HcclCommDestroy(comm);
}

/// Returns whether the allocation was reached.
bool leaves_without_memory(long number) {
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Board& board = *new (page) Board;
  std::array<pid_t, 2> processes{};
  std::array<int, 2> pipe{};  // the write end closes when the root info is there
  if (::pipe(pipe.data()) != 0) std::abort();
  processes[0] = ::fork();
  if (processes[0] == 0) {
    if (HcclGetRootInfo(&board.info) != HCCL_SUCCESS) ::_exit(1);
    ::close(pipe[0]);
    ::close(pipe[1]);
    run_rank(board, 0, number);
    ::_exit(0);
  }
  processes[1] = ::fork();
  if (processes[1] == 0) {
    ::close(pipe[1]);
    char none = 0;
    static_cast<void>(::read(pipe[0], &none, 1));
    std::thread stays([&] { run_rank(board, 2, number); });
    run_rank(board, kLeaves, number);
    stays.join();
    ::_exit(0);
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  for (const pid_t each : processes) {
    int status = -1;
    ::waitpid(each, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  }
  for (const std::uint32_t rank : {0U, 2U}) {
    EXPECT_EQ(board.joined[rank], HCCL_SUCCESS);
    EXPECT_NE(board.last[rank], HCCL_SUCCESS) << "rank " << rank;
    EXPECT_NE(board.last[rank], HCCL_E_TIMEOUT) << "rank " << rank << ": " << board.text[rank];
    EXPECT_STRNE(board.text[rank], "") << "rank " << rank;
  }
  const bool reached = board.failed_allocation;
  ::munmap(page, sizeof(Board));
  return reached;
}

TEST(OutOfMemory, ARankThatLeavesItsProcessIsMissed) {
  fail_allocation = reinterpret_cast<void (*)(long)>(::dlsym(RTLD_DEFAULT, "fail_allocation"));
  has_failed = reinterpret_cast<bool (*)()>(::dlsym(RTLD_DEFAULT, "has_failed"));
  ASSERT_NE(fail_allocation, nullptr) << "LD_PRELOAD has no failing_malloc";
  int number = 0;
  for (; number < kAllocations && !HasFailure(); ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    if (!leaves_without_memory(number)) break;
  }
  EXPECT_LT(number, kAllocations);
  std::printf("leaving makes %d allocations\n", number);
}

}  // namespace
}  // namespace hccl::testing
