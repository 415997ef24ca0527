// A program that ends while one of its threads waits inside a call: what the call uses lives on, so
// that the thread, and those of the library, may run until the process is gone. Ranks are processes
// that know the public interface only.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/support/api_processes.h"

namespace hccl::testing {
namespace {

constexpr std::size_t kWaits = 0, kEnds = 1;  // of Board::progress

Board* shared = nullptr;  // for the handler of exit()

/// The root, which dies as soon as the other one's library has ended.
int die_late() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 0, &comm) != HCCL_SUCCESS) return 1;
  return eventually([] { return shared->progress[kEnds] != 0; }) ? 0 : 2;
}

/// Registered before the library's own handlers, so that it runs after them.
void outlive_library() {
  shared->progress[kEnds] = 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

int exit_during_call() {
  if (std::atexit(outlive_library) != 0) return 1;
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 1, &comm) != HCCL_SUCCESS) return 2;
  std::thread([comm] {
    shared->progress[kWaits] = 1;
    float value = 1;  // the other rank does not come
    HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }).detach();
  while (shared->progress[kWaits] == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it waits
  std::exit(7);
}

TEST(Exit, WhileAThreadIsInsideACall) {
  Processes ranks;
  shared = &ranks.board();
  const int root = ranks.start(die_late);
  const int other = ranks.start(exit_during_call);
  const int status = ranks.wait(other);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(ranks.wait(root), 0);
}

}  // namespace
}  // namespace hccl::testing
