// The library's file descriptors. Every one of them is made by Fd's constructor, and a test refuses
// the system's calls elsewhere.
//
// The numbers 0 to 2 are the program's, also where it has closed them: what it prints must never
// land in memory or a socket of the library. And a program may close descriptors that it does not
// know (closefrom, dup2), and have other files by their numbers.
#pragma once

#include <sys/types.h>

#include <utility>

#include "hccl/base/status.h"

namespace hccl {

/// A file descriptor that closes itself, unless its number is another file's by then.
class Fd {
 public:
  Fd() = default;
  /// Takes what a call of the system has made, close-on-exec, and moves it if it is one of 0 to 2.
  /// Less than 0 (with errno): nothing.
  explicit Fd(int fd) noexcept;
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      device_ = other.device_;
      inode_ = other.inode_;
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  /// errno stays as it is.
  void reset() noexcept {
    if (fd_ >= 0) close();
  }
  /// Whether the number still names the file that it named at first.
  bool ours() const noexcept;

 private:
  void close() noexcept;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Opens /dev/null for those of the descriptors 0 to 2 that the program has closed.
void fill_standard_descriptors();

/// The failure of reading or writing a socket: kTcpTransfer, or kSyscall if the program has taken
/// the descriptor.
Status io_failure(const char* what, int error);

}  // namespace hccl
