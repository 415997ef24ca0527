// How much memory may still be taken before the kernel kills a process for it: what the limits of
// its cgroups and the machine leave. Reads a few files of /proc and /sys: for growth by megabytes,
// not for each allocation.
#pragma once

#include <cstdint>
#include <string>

#include "hccl/base/status.h"

namespace hccl {

struct MemoryLeft {
  std::uint64_t bytes = UINT64_MAX;  ///< less a margin for what is not asked beforehand
  std::string of;                    ///< what limits it, in words
};

/// Of this process, now. Page cache that nobody uses counts as free. `root`: the folder that holds
/// proc/ and whatever else the paths there name. All is left where nothing can be read.
MemoryLeft memory_left(const std::string& root = "");

/// kOom, with the numbers and `what`: these bytes more are not to be had.
Status room_for(std::uint64_t bytes, const char* what);
Status no_room(std::uint64_t bytes, const char* what, const MemoryLeft& left);

}  // namespace hccl
