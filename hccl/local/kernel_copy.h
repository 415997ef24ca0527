// Copies by the kernel between the private memory of two ranks of a host (cross memory attach, CMA:
// hccl/base/process_memory.h). The owner of data stores it, where it can: a cache line crosses
// between cores when its new owner reads it, and not in the operation.
#pragma once

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Whether all ranks may copy from and to each other's memory so. Collective, between the same
/// operations of all ranks; the same answer on all of them. For ranks of one process it is false:
/// they reach everything anyway. A failure is that of a wait.
Result<bool> attach(Region& region);

/// Copies `bytes` from address `from` of the rank at `place`. kPara, naming the rank, where a
/// buffer is no memory that the kernel copies; or why the operation has failed meanwhile.
Status fetch(Region& region, const Operation& op, int place, std::uint64_t from, std::byte* to,
             std::size_t bytes);
/// The same the other way, to address `to` of the rank at `place`.
Status store(Region& region, const Operation& op, int place, std::uint64_t to,
             const std::byte* from, std::size_t bytes);

/// The part of this rank's staging buffer that fetch() and store() leave alone.
inline constexpr std::size_t kFreeOfCopies = std::size_t{1} << 20;

}  // namespace hccl::local
