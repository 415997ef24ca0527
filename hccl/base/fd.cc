#include "hccl/base/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "hccl/base/error_text.h"

namespace hccl {
namespace {

constexpr int kFirst = 3;

}  // namespace

Fd::Fd(int fd) noexcept : fd_(fd) {
  if (fd_ >= 0 && fd_ < kFirst) {
    fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirst);
    const int error = errno;
    ::close(fd);
    errno = error;
  }
  struct stat about{};
  if (fd_ < 0 || ::fstat(fd_, &about) != 0) return;
  device_ = about.st_dev;
  inode_ = about.st_ino;
}

bool Fd::ours() const noexcept {
  struct stat about{};
  return fd_ >= 0 && ::fstat(fd_, &about) == 0 && about.st_dev == device_ && about.st_ino == inode_;
}

void Fd::close() noexcept {
  const int error = errno;
  if (ours()) ::close(fd_);
  fd_ = -1;
  errno = error;
}

// open() takes the lowest free number, which is the closed descriptor's.
void fill_standard_descriptors() {
  for (int each = 0; each < kFirst; ++each) {
    if (::fcntl(each, F_GETFD) >= 0) continue;
    const int null = ::open("/dev/null", O_RDWR);  // stays open for the program, also after exec
    if (null >= kFirst) ::close(null);             // another thread was faster
  }
}

Status io_failure(const char* what, int error) {
  const bool taken = error == EBADF || error == ENOTSOCK;
  return Status(taken ? Code::kSyscall : Code::kTcpTransfer,
                std::string(what) + ": " + error_text(error));
}

}  // namespace hccl
