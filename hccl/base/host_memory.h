// The memory of the host's other ranks that this rank can load and store directly. A mesh with
// shared memory offers this memory in addition to messages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

namespace hccl {

struct HostMemory {
  struct PeerMemory {
    /// The peer's device heap, mapped here: heap[o] is the byte at the heap's offset o. Null if the
    /// peer has no device heap.
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;
    /// True if the peer is a thread of this process; then the peer's addresses are valid here.
    bool same_process = false;
    /// The peer's process id as seen by this process, for copies by the kernel
    /// (hccl/base/process_memory.h); 0: unknown. Only an attempt shows whether the id is right and
    /// copies are permitted.
    pid_t process = 0;
  };

  std::vector<int> ranks;  ///< the host's ranks, ascending; the index is the local rank
  int local_rank = 0;      ///< the local rank of this rank
  /// The memory that all ranks share, OpenArgs::area_bytes long; all zeroes when the mesh opens.
  std::span<std::byte> area;
  std::vector<PeerMemory> peers;  ///< by local rank; this rank's own included
  /// Returns whether every rank has device memory that all ranks can reach. The result is the same
  /// on all ranks. If it is false, `heap` is null for every peer.
  bool heaps_shared() const { return !peers.empty() && peers.front().heap != nullptr; }
};

}  // namespace hccl
