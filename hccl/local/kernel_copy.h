// Copies by the kernel between the private memory of two ranks of a host (cross memory attach, CMA:
// hccl/base/process_memory.h). Where possible, the owner of data stores it into the peer's memory:
// the cache line then crosses between cores when the peer reads it, not during the operation.
#pragma once

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// Whether the kernel may copy between the memory of all ranks. Collective, between the same
/// operations of all ranks; the result is the same on all of them. False for ranks of one process,
/// which reach all memory anyway. Fails as a wait fails.
Result<bool> attach(Region& region);

/// Copies `bytes` bytes from address `from` of the rank at `place`. kPara, naming the rank: the
/// kernel cannot copy from or to a buffer. Otherwise an error is the reason for which the operation
/// has failed meanwhile.
Status fetch(Region& region, const Operation& op, int place, std::uint64_t from, std::byte* to,
             std::size_t bytes);
/// The same in the other direction, to address `to` of the rank at `place`.
Status store(Region& region, const Operation& op, int place, std::uint64_t to,
             const std::byte* from, std::size_t bytes);

/// The first part of this rank's chunk area, which fetch() and store() never use.
inline constexpr std::size_t kFreeOfCopies = std::size_t{1} << 20;

}  // namespace hccl::local
