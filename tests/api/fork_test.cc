// A rank is killed while a child that it has forked still sleeps: the child does not hide the
// death. Ranks are processes that use only the public interface. HCCL_TRANSPORT chooses the
// transport.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "tests/support/api_processes.h"

namespace hccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSize = 3;
constexpr std::size_t kChild = kSize;  // the child's index in Board::progress

/// Calls until a call fails; the victim forks meanwhile.
int live(Board& board, int rank, int victim, pid_t (*fork_one)()) {
  const auto me = static_cast<std::size_t>(rank);
  HcclComm comm = nullptr;
  HcclResult result = join_public(board, kSize, rank, &comm);
  for (int i = 0; result == HCCL_SUCCESS; ++i) {
    if (rank == victim && i == 4) {
      const pid_t child = fork_one();
      if (child == 0) {
        for (;;) ::pause();
      }
      board.progress[kChild] = static_cast<std::uint64_t>(child);
    }
    float value = 1;
    result = HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
    ++board.progress[me];
  }
  board.first[me].set(Status(static_cast<Code>(result), HcclGetLastErrorText()));
  return 0;
}

/// Kills a victim that has forked, and expects that the others name it. Returns the longest time
/// until a survivor got the error, minus the machine's lateness.
std::chrono::nanoseconds time_to_hear(int victim, pid_t (*fork_one)()) {
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] { return live(board, r, victim, fork_one); });
  }
  EXPECT_TRUE(eventually([&] { return board.progress[kChild] != 0; })) << board.first[0].message();
  const auto child = static_cast<pid_t>(board.progress[kChild].load());
  if (child == 0) return {};
  const std::int64_t killed = now_ns();
  processes.kill(victim);
  Lateness lateness;
  const auto know = [&] {
    return std::all_of(board.first.begin(), board.first.begin() + kSize, [&](const auto& it) {
      return it.known || &it == &board.first[static_cast<std::size_t>(victim)];
    });
  };
  EXPECT_TRUE(lateness.watch(know, seconds(30)));
  EXPECT_EQ(::kill(child, 0), 0) << "the child has ended";
  ::kill(child, SIGKILL);
  std::int64_t worst = 0;
  for (int r = 0; r < kSize; ++r) {
    if (r == victim) continue;
    const Outcome& first = board.first[static_cast<std::size_t>(r)];
    EXPECT_EQ(first.code, Code::kRemote) << first.message();
    const std::string name = "rank " + std::to_string(victim) + " (";
    EXPECT_NE(first.message().find(name), std::string::npos) << first.message();
    worst = std::max(worst, first.at_ns - killed);
    EXPECT_EQ(processes.wait(r), 0);
  }
  std::cout << "  time from SIGKILL to the error on a survivor, at worst: "
            << static_cast<double>(worst) / 1e6 << " ms\n";
  return std::chrono::nanoseconds(worst) - 4 * lateness.worst();
}

void expect_death_is_heard(const std::vector<int>& victims, pid_t (*fork_one)(),
                           std::chrono::nanoseconds bound) {
  constexpr int kTries =
      3;  // a busy machine may delay the ranks even if it does not delay this process
  for (const int victim : victims) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    std::chrono::nanoseconds best = time_to_hear(victim, fork_one);
    for (int i = 1; i < kTries && best > bound; ++i) {
      best = std::min(best, time_to_hear(victim, fork_one));
    }
    EXPECT_LE(best.count(), bound.count());
  }
}

TEST(Fork, ASleepingChildDoesNotHideItsParentsDeath) {
  // Kills the root's process, then another rank.
  expect_death_is_heard({0, 2}, [] { return ::fork(); }, milliseconds(500));
}

// No handler of pthread_atfork runs in a raw clone, so only the peer timeout reveals the death.
TEST(Fork, AChildByRawCloneHidesItForThePeerTimeout) {
  ::setenv("HCCL_PEER_TIMEOUT", "5", 1);
  expect_death_is_heard(
      {2}, [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); },
      seconds(6));
  ::unsetenv("HCCL_PEER_TIMEOUT");
}

}  // namespace
}  // namespace hccl::testing
