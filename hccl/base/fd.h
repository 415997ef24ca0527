// The library's file descriptors. Fd's constructor makes every one of them, and a test rejects the
// system's calls elsewhere.
//
// The numbers 0 to 2 belong to the program, even if it has closed them: its output must never land
// in memory or a socket of the library. A program may also close descriptors that it does not know
// (closefrom, dup2), and later have other files with their numbers.
#pragma once

#include <sys/types.h>

#include <utility>

#include "hccl/base/status.h"

namespace hccl {

/// A file descriptor that closes itself, unless its number has become that of another file.
class Fd {
 public:
  Fd() = default;
  /// Owns a descriptor that a system call has returned, close-on-exec. Moves the descriptor if it
  /// is one of 0 to 2. A value less than 0 (with errno): owns nothing.
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
  /// Keeps errno.
  void reset() noexcept {
    if (fd_ >= 0) close();
  }
  /// Whether the number still names the original file.
  bool ours() const noexcept;

 private:
  void close() noexcept;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Opens /dev/null for each descriptor of 0 to 2 that the program has closed.
void fill_standard_descriptors();

/// The failure of reading or writing a socket: kTcpTransfer, or kSyscall if the descriptor is no
/// longer the library's.
Status io_failure(const char* what, int error);

}  // namespace hccl
