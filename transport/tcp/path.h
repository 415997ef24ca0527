// Whether the path to a peer's host still carries bytes. The kernel itself would send again for a
// quarter of an hour.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "hccl/base/deadline.h"

namespace hccl::transport::tcp {

/// Watches one connected socket between two hosts. A stopped or busy peer never counts as a broken
/// path, because its kernel goes on to answer, with a window of zero if need be.
class Path {
 public:
  /// Lets the kernel probe the connection while it is idle: a host that does not answer for
  /// `patience` ends the connection with ETIMEDOUT.
  Path(int fd, std::chrono::nanoseconds patience);

  /// For sent bytes, which stop the kernel's probes: empty, or the reason. That is that the peer's
  /// host has answered nothing for `patience` although bytes were sent at least three times again,
  /// or has accepted nothing for three times as long although it has room. To be called at times:
  /// what happened while nobody looked does not count.
  std::string fault(int fd);

 private:
  std::chrono::nanoseconds patience_;
  std::uint64_t acknowledged_ = 0;     // bytes
  Deadline::Clock::time_point since_;  // so many are acknowledged
  Deadline::Clock::time_point looked_;
};

}  // namespace hccl::transport::tcp
