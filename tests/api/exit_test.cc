// How programs and threads end: while a thread waits in a call, in a callback, in the destructor of
// a global object, and by pthread_cancel. The library's data stays valid until the process is gone.
// Ranks are processes that use only the public interface.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "hccl/acl/acl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_processes.h"

namespace hccl::testing {
namespace {

constexpr std::size_t kWaits = 0, kEnds = 1;  // indices of Board::progress
constexpr int kCode = 7;

Board* shared = nullptr;  // exit handlers and destructors use it

HcclResult allreduce(HcclComm comm) {
  float value = 1;
  return HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// The two ranks end with these codes, and not by a signal.
void expect_ends(int (*rank0)(), int code0, int (*rank1)(), int code1) {
  Processes ranks;
  shared = &ranks.board();
  const int processes[] = {ranks.start(rank0), ranks.start(rank1)};
  const int codes[] = {code0, code1};
  for (const int rank : {1, 0}) {
    const int status = ranks.wait(processes[rank]);
    ASSERT_TRUE(WIFEXITED(status)) << "rank " << rank << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), codes[rank]) << "rank " << rank;
  }
}

// ---- while a thread waits ----

/// The root is in rank 0's process, which ends as soon as the library of rank 1 has shut down.
int die_late() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 0, &comm) != HCCL_SUCCESS) return 1;
  return eventually([] { return shared->progress[kEnds] != 0; }) ? 0 : 2;
}

/// Registered before the library's own exit handlers, so it runs after them.
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
    allreduce(comm);  // the other rank does not come
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }).detach();
  while (shared->progress[kWaits] == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // gives the thread time to wait
  std::exit(kCode);
}

TEST(Exit, WhileAThreadIsInsideACall) { expect_ends(die_late, 0, exit_during_call, kCode); }

// ---- in the destructor of a global object ----

/// Constructed before any state of the library, so its destructor runs after the library's
/// destructors.
struct Global {
  ~Global() {
    if (comm == nullptr) return;
    std::_Exit(HcclCommDestroy(comm) == HCCL_SUCCESS ? kCode : 2);
  }
  HcclComm comm = nullptr;
} global;

template <int kRank>
int destroy_at_exit() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, kRank, &comm) != HCCL_SUCCESS || allreduce(comm) != HCCL_SUCCESS) {
    return 1;
  }
  global.comm = comm;
  std::exit(0);
}

TEST(Exit, ADestructorOfAGlobalDestroys) {
  expect_ends(destroy_at_exit<0>, kCode, destroy_at_exit<1>, kCode);
}

// ---- in a callback ----

void exit_now(void*) { std::exit(kCode); }
void exit_after_message(void*, HcclResult) { std::exit(kCode); }

int wait_for_exit(HcclResult begun) {
  if (begun != HCCL_SUCCESS) return 2;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 3;
}

int exit_in_message() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 0, &comm) != HCCL_SUCCESS) return 1;
  static int got = 0;
  return wait_for_exit(
      HcclIrecv(&got, sizeof got, 1, 5, comm, exit_after_message, nullptr, nullptr));
}

int exit_in_stream() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 1, &comm) != HCCL_SUCCESS) return 1;
  const int sent = 1;
  if (HcclIsend(&sent, sizeof sent, 0, 5, comm, nullptr, nullptr, nullptr) != HCCL_SUCCESS)
    return 4;
  aclrtStream stream = nullptr;
  if (aclrtCreateStream(&stream) != ACL_SUCCESS) return 5;
  return wait_for_exit(static_cast<HcclResult>(aclrtLaunchHostFunc(stream, exit_now, nullptr)));
}

TEST(Exit, InACallback) { expect_ends(exit_in_message, kCode, exit_in_stream, kCode); }

// ---- pthread_cancel ----

void* call_once(void* comm) {
  shared->progress[kWaits] = 1;
  allreduce(comm);
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // may be cancelled here
}

/// A thread is cancelled within a call. That call still succeeds, and so does the next one.
int cancel_a_call() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 0, &comm) != HCCL_SUCCESS) return 1;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, call_once, comm) != 0) return 2;
  while (shared->progress[kWaits] == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // gives the call time to wait
  pthread_cancel(thread);
  shared->progress[kEnds] = 1;
  void* result = nullptr;
  pthread_join(thread, &result);
  if (result != PTHREAD_CANCELED) return 3;
  if (allreduce(comm) != HCCL_SUCCESS) return 4;
  return HcclCommDestroy(comm) == HCCL_SUCCESS ? kCode : 5;
}

int come_after_the_cancel() {
  HcclComm comm = nullptr;
  if (join_public(*shared, 2, 1, &comm) != HCCL_SUCCESS) return 1;
  if (!eventually([] { return shared->progress[kEnds] != 0; })) return 2;
  if (allreduce(comm) != HCCL_SUCCESS || allreduce(comm) != HCCL_SUCCESS) return 3;
  return HcclCommDestroy(comm) == HCCL_SUCCESS ? kCode : 4;
}

TEST(Exit, AThreadIsCancelledInACall) {
  expect_ends(cancel_a_call, kCode, come_after_the_cancel, kCode);
}

// ---- pthread_exit of the main thread ----

/// The process ends with its last thread, and with code 0.
template <int kRank>
int end_the_main_thread() {
  HcclComm comm = nullptr;
  const auto threads = threads_of_this_process();
  for (int world = 0; world < 2; ++world) {
    if (world == 1) {  // the library's thread has ended, and comes back
      if (!eventually([&] { return threads_of_this_process() == threads; })) return 1;
      HcclRootInfo own;
      if (HcclGetRootInfo(&own) != HCCL_SUCCESS) return 2;
      if (HcclCommInitRootInfo(1, &own, 0, &comm) != HCCL_SUCCESS) return 2;
    } else if (join_public(*shared, 2, kRank, &comm) != HCCL_SUCCESS) {
      return 3;
    }
    if (allreduce(comm) != HCCL_SUCCESS || HcclCommDestroy(comm) != HCCL_SUCCESS) return 4;
  }
  ::syscall(SYS_exit, 0);  // as pthread_exit(), but without the destructors of this test's frames
  return 5;
}

TEST(Exit, TheMainThreadEndsBeforeTheProcess) {
  expect_ends(end_the_main_thread<0>, 0, end_the_main_thread<1>, 0);
}

}  // namespace
}  // namespace hccl::testing
