// Copies by the kernel between the private memory of two ranks of a host (cross memory attach, CMA:
// hccl/base/process_memory.h). Where possible, the owner of data stores it into the peer's memory:
// the cache line then crosses between cores when the peer reads it, not during the operation.
#pragma once

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Whether the kernel may copy between the memory of all ranks. The result is the same on all
/// ranks. False for ranks of one process: they reach all memory without the kernel. Collective,
/// between the same operations of all ranks. Returns the errors of a wait.
Result<bool> attach(Region& region);

/// Copies `bytes` bytes from address `from` of the rank `local_rank`. kPara, naming the rank: the
/// kernel cannot copy from or to a buffer. kAgain: the kernel refuses to copy; the caller passes
/// this status to finish_copies(). Any other error is the reason for which the operation has failed
/// meanwhile.
Status fetch(Region& region, const Operation& op, int local_rank, std::uint64_t from, std::byte* to,
             std::size_t bytes);
/// As fetch(), in the other direction: to address `to` of the rank `local_rank`.
Status store(Region& region, const Operation& op, int local_rank, std::uint64_t to,
             const std::byte* from, std::size_t bytes);

/// Ends an operation; `copied` is the status of this rank's copies. All ranks meet here. The kernel
/// may have refused a copy to one of them, because the program has changed permissions (prctl,
/// seccomp). Then all ranks get kSyscall with the same text, and no rank uses the buffers of
/// another any more.
Status finish_copies(Region& region, Status copied);
/// Whether `status` is the result of finish_copies() after a refused copy of this operation.
bool copies_refused(const Region& region, const Status& status);

/// The bytes at the start of this rank's chunk area that fetch() and store() never use.
inline constexpr std::size_t kFreeOfCopies = std::size_t{1} << 20;

}  // namespace hccl::local
