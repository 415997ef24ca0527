// Finds how much more memory the kernel grants before it kills a process: the limits of the
// process's cgroups and the machine's memory decide. Each call reads a few files of /proc and /sys,
// so call it for growth by megabytes, not for each allocation.
#pragma once

#include <cstdint>
#include <string>

#include "hccl/base/status.h"

namespace hccl {

struct MemoryLeft {
  std::uint64_t bytes = UINT64_MAX;  ///< less a margin for allocations that do not check
  std::string of;                    ///< a description of the limit
};

/// Returns how much memory this process can still get. Unused page cache counts as free. `root`:
/// the folder in which /proc and the cgroups' files are read. Without readable files there is no
/// limit.
MemoryLeft memory_left(const std::string& root = "");

/// Returns kOom if fewer than `bytes` bytes are left; the text has `what` and the numbers.
Status room_for(std::uint64_t bytes, const char* what);
/// Returns the error of room_for().
Status no_room(std::uint64_t bytes, const char* what, const MemoryLeft& left);

}  // namespace hccl
