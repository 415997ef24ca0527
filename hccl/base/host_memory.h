// What the ranks of one host can reach of each other by load and store. A mesh with shared memory
// offers it beside its messages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

namespace hccl {

struct HostMemory {
  struct Peer {
    /// The peer's device heap as it lies here: what it says is at offset o is at heap[o]. Null when
    /// it has none.
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;
    /// A thread of this very process: its addresses are good here.
    bool same_process = false;
    /// Its process as this one sees it, for the kernel's copies (hccl/base/process_memory.h); 0:
    /// unknown. Whether it is the right one, and may be copied from, only an attempt tells.
    pid_t process = 0;
  };

  std::vector<int> ranks;  ///< of the mesh, ascending; a rank's place is its index here
  int place = 0;           ///< of this rank
  /// The same memory for all of them, OpenArgs::area_bytes long; all zeroes when the mesh opens.
  std::span<std::byte> area;
  std::vector<Peer> peers;  ///< by place; one's own too
};

}  // namespace hccl
