// The library's file descriptors. Every new descriptor goes into an Fd at once; a test rejects a
// system call that makes a descriptor elsewhere.
//
// The numbers 0 to 2 belong to the program, even if it has closed them: the program's output must
// never reach memory or a socket of the library. A program may also close descriptors that it does
// not know (closefrom, dup2), and later open other files that get the same numbers.
#pragma once

#include <sys/types.h>

#include <utility>

#include "hccl/base/status.h"

namespace hccl {

/// Owns a file descriptor and closes it, unless another file now has the number.
class Fd {
 public:
  Fd() = default;
  /// Owns a descriptor that a system call has returned and marked close-on-exec. Gives the
  /// descriptor a higher number if it is 0, 1 or 2. If `fd` is negative, owns nothing and does not
  /// change errno.
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
  /// Closes the descriptor. Does not change errno.
  void reset() noexcept {
    if (fd_ >= 0) close();
  }
  /// Returns whether the number still names the original file.
  bool ours() const noexcept;

 private:
  void close() noexcept;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Opens /dev/null for each of the descriptors 0 to 2 that the program has closed.
void fill_standard_descriptors();

/// Returns the status of a failed read or write of a socket: kTcpTransfer, or kSyscall if the
/// program has closed or replaced the descriptor.
Status io_failure(const char* what, int error);

}  // namespace hccl
