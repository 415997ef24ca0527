// Finds how much more memory the kernel grants before it kills a process: the limits of its cgroups
// and the machine decide. Reads a few files of /proc and /sys, so it is for growth by megabytes,
// not for each allocation.
#pragma once

#include <cstdint>
#include <string>

#include "hccl/base/status.h"

namespace hccl {

struct MemoryLeft {
  std::uint64_t bytes = UINT64_MAX;  ///< less a margin for allocations that are not checked
  std::string of;                    ///< a description of the limit
};

/// For this process, now. Unused page cache counts as free. `root`: the folder that contains proc/
/// and the other named paths. Without readable files there is no limit.
MemoryLeft memory_left(const std::string& root = "");

/// kOom, with the numbers and `what`: fewer than `bytes` more bytes are available.
Status room_for(std::uint64_t bytes, const char* what);
Status no_room(std::uint64_t bytes, const char* what, const MemoryLeft& left);

}  // namespace hccl
