#include "hccl/base/thread.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "hccl/base/caught.h"

namespace hccl {
namespace {

sigset_t mask_here() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

std::vector<int> signals(const sigset_t& mask) {
  std::vector<int> all;
  for (int each = 1; each < SIGRTMIN; ++each) {
    if (sigismember(&mask, each) == 1) all.push_back(each);
  }
  return all;
}

const std::vector<int> kFaults{SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};

// All signals that can be blocked, except faults.
std::vector<int> but_faults() {
  std::vector<int> all;
  for (int each = 1; each < SIGRTMIN - 2; ++each) {  // glibc uses two signals itself
    if (each != SIGKILL && each != SIGSTOP && std::ranges::count(kFaults, each) == 0) {
      all.push_back(each);
    }
  }
  return all;
}

TEST(Thread, HasANameAndNoSignalsButFaults) {
  const sigset_t before = mask_here();
  sigset_t mask{};
  std::string name(16, 0);
  Thread thread("hccl-fifteen-15", [&] {
    mask = mask_here();
    ::prctl(PR_GET_NAME, name.data());
  });
  EXPECT_TRUE(thread.started());
  thread.join();
  EXPECT_FALSE(thread.started());
  EXPECT_STREQ(name.c_str(), "hccl-fifteen-15");
  EXPECT_EQ(signals(mask), but_faults());
  EXPECT_EQ(signals(mask_here()), signals(before));
}

TEST(Thread, RestoresTheProgramsMaskAroundItsFunctions) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &one, &before);
  const std::vector<int> programs = signals(mask_here());
  std::vector<int> inside, after, nested;
  Thread thread("hccl-test", [&] {
    {
      const ProgramMask mask;
      inside = signals(mask_here());
    }
    after = signals(mask_here());
    const Thread started_by_it("hccl-nested", [&] {
      const ProgramMask mask;
      nested = signals(mask_here());
    });
  });
  thread.join();
  const ProgramMask none;  // ProgramMask changes nothing on a thread of the program
  EXPECT_EQ(signals(mask_here()), programs);
  EXPECT_EQ(inside, programs);
  EXPECT_EQ(after, but_faults());
  EXPECT_EQ(nested, programs);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Thread, EndsAloneWithAnException) {
  Thread thread("hccl-test", [] { throw std::runtime_error("no"); });
  thread.join();
  EXPECT_FALSE(thread.started());
}

TEST(Thread, ThatCannotBeStartedSaysWhichAndWhatToDo) {
  const std::vector<int> before = signals(mask_here());
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);  // no address space has room for such a stack
  Status why;
  try {
    const Thread thread("hccl-test", [] {});
  } catch (...) {
    why = caught();
  }
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(why.code(), Code::kSyscall);
  EXPECT_NE(why.message().find("hccl-test cannot be started; raise"), std::string::npos)
      << why.message();
  EXPECT_EQ(signals(mask_here()), before);
}

TEST(Thread, IsNotJoinedByAForkedChild) {
  std::atomic<bool> over{false};
  Thread thread("hccl-test", [&] { over.wait(false); });
  const pid_t child = ::fork();
  if (child == 0) {
    thread.join();
    ::_exit(thread.started() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  over = true;
  over.notify_all();
}

}  // namespace
}  // namespace hccl
