// Copies by the kernel between the private memory of two ranks of a host (cross memory attach, CMA:
// hccl/base/process_memory.h). Where possible, a rank stores its data into the peer's memory: then
// a cache line crosses between cores when the peer reads the line, not during the operation.
#pragma once

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Whether the kernel may copy between the memory of all ranks. The result is the same on all
/// ranks. False if all ranks are in one process: they reach all memory without the kernel. All
/// ranks must call attach() between the same two operations. Fails if a wait for another rank
/// fails.
Result<bool> attach(Region& region);

/// Copies `bytes` bytes from address `from` of the rank `local_rank`. kPara, naming the rank: the
/// kernel cannot copy from or to a buffer. kAgain: the kernel refuses to copy; the caller passes
/// this status to finish_copies(). Any other error is the reason why the operation has failed
/// meanwhile.
Status fetch(Region& region, const Operation& op, int local_rank, std::uint64_t from, std::byte* to,
             std::size_t bytes);
/// Copies `bytes` bytes to address `to` of the rank `local_rank`. Fails like fetch().
Status store(Region& region, const Operation& op, int local_rank, std::uint64_t to,
             const std::byte* from, std::size_t bytes);

/// Ends an operation with a barrier, after which no rank uses another rank's buffers. `copied` is
/// the status of this rank's copies; an error other than kAgain is returned at once, without the
/// barrier. If the kernel has refused a copy to any rank, for example because the program has
/// changed permissions (prctl, seccomp), all ranks get kSyscall with the same text.
Status finish_copies(Region& region, Status copied);
/// Whether `status` is the result of finish_copies() after a refused copy of this operation.
bool copies_refused(const Region& region, const Status& status);

/// The bytes at the start of this rank's chunk area that fetch() and store() never use.
inline constexpr std::size_t kFreeOfCopies = std::size_t{1} << 20;

}  // namespace hccl::local
