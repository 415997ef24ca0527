// Descriptors: the library takes no number below 3, and never closes or writes a file of the
// program.
#include "hccl/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "hccl/base/socket.h"
#include "tests/support/folder.h"

namespace hccl {
namespace {

int null() { return ::open("/dev/null", O_RDWR | O_CLOEXEC); }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, NeverHasANumberOfTheProgram) {
  const Fd input(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  ::close(0);
  const Fd file(null());
  EXPECT_GT(file.get(), 2);
  EXPECT_EQ(::fcntl(file.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(is_open(0));
  fill_standard_descriptors();
  EXPECT_TRUE(is_open(0));
  if (input.valid()) ::dup2(input.get(), 0);
}

TEST(Fd, ClosesItsOwnFileAndNoOther) {
  const testing::Folder folder;
  const std::string path = folder.write("mine", "");
  const Fd mine(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  int number = -1;
  {
    const Fd file(null());
    number = file.get();
    EXPECT_TRUE(file.ours());
  }
  EXPECT_FALSE(is_open(number));
  {
    Fd first(null());
    number = first.get();
    ::dup2(mine.get(), number);
    const Fd file = std::move(first);
    EXPECT_FALSE(file.ours());
    errno = EIO;
  }
  EXPECT_EQ(errno, EIO);
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(Sleeper, WritesIntoNoFileOfTheProgram) {
  const testing::Folder folder;
  const std::string path = folder.write("mine", "");
  const auto sleeper = EpollSleeper::create().value();
  const Fd mine(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ::dup2(mine.get(), sleeper->wake_fd());
  sleeper->ring();
  sleeper->awake();
  EXPECT_EQ(folder.read("mine"), "");
  ::close(sleeper->wake_fd());
}

TEST(Sleeper, SleepsOnWithoutItsDescriptors) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kNap(50);
  for (const bool closed : {true, false}) {
    const auto sleeper = EpollSleeper::create().value();
    const Fd file(null());
    closed ? ::close(sleeper->epoll()) : ::dup2(file.get(), sleeper->epoll());
    const auto begin = Clock::now();
    for (int i = 0; i < 3; ++i) sleeper->sleep(sleeper->prepare(), kNap);
    EXPECT_GE(Clock::now() - begin, 2 * kNap) << "it would use up a core";
    if (!closed) ::close(sleeper->epoll());
  }
}

}  // namespace
}  // namespace hccl
