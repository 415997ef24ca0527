// Finds out whether the path to a peer's host still carries bytes. Without this check the kernel
// would repeat packets for a quarter of an hour.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "hccl/base/deadline.h"

namespace hccl::transport::tcp {

/// Watches one connected socket between two hosts. A stopped or busy peer never counts as a broken
/// path: its kernel still answers, if necessary with a window of zero.
class Path {
 public:
  /// Lets the kernel probe the connection while it is idle: a host that does not answer for
  /// `patience` ends the connection with ETIMEDOUT.
  Path(int fd, std::chrono::nanoseconds patience);

  /// Checks the path while sent bytes wait for an acknowledgement, because the kernel does not
  /// probe then. Returns the reason of a broken path, or an empty text. The path is broken if the
  /// peer's host has answered nothing for `patience` although bytes were sent again at least three
  /// times. It is also broken if the host has accepted nothing for three times `patience` although
  /// it has room. Call it regularly: time without a call does not count.
  std::string fault(int fd);

 private:
  std::chrono::nanoseconds patience_;
  std::uint64_t acknowledged_ = 0;     // bytes
  Deadline::Clock::time_point since_;  // acknowledged_ has not changed since
  Deadline::Clock::time_point looked_;
};

}  // namespace hccl::transport::tcp
