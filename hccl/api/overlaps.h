// Checks that buffers share memory only where the API allows that. Without the check an operation
// would read data that it has overwritten, and succeed with wrong results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hccl/api/call_group.h"

namespace hccl::api {

/// Memory that a call reads or writes.
struct Extent {
  std::uintptr_t at;
  std::uint64_t bytes;
  bool written;
  const char* name;  ///< in error texts
  int number = -1;   ///< of a block, message or gradient
};
inline std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

/// kPara: an extent is written, and another one shares memory with it. `hint`: what to do instead.
Status check_apart(const core::Communicator& comm, std::vector<Extent> extents, const char* hint);

Status compare(const core::Communicator& comm, const Call& call);
Status compare_blocks(const core::Communicator& comm, const Call& call);

inline bool mapped_twice(const core::Communicator& comm) {
  return comm.membership().heap != nullptr && comm.membership().heap->mapped_twice();
}
/// Whether the ranges do not overlap: modulo 2^64, each begins behind the end of the other.
inline bool apart(std::uintptr_t a, std::uint64_t a_bytes, std::uintptr_t b,
                  std::uint64_t b_bytes) {
  return b - a >= a_bytes && a - b >= b_bytes;
}

/// kPara: the buffers share memory, but not in place. The usual calls are decided at once: those
/// with one buffer, and those whose buffers are further apart than either is long.
inline Status check_overlaps(const core::Communicator& comm, const Call& call) {
  if (has_blocks(call.op)) return compare_blocks(comm, call);
  const std::uint64_t element = size_of(call.type);
  const auto in = address(call.in), out = address(call.out);
  const std::uint64_t longest = call.count * element * static_cast<std::uint64_t>(comm.size());
  const bool usual = apart(in, longest, out, longest) ||
                     (in == out && (call.op == Op::kAllReduce || call.op == Op::kBroadcast));
  if (usual && !mapped_twice(comm)) return {};
  return compare(comm, call);
}

/// As above, for sends and receives that run concurrently.
Status check_overlaps(const core::Communicator& comm, std::span<const exec::Transfer> transfers);

}  // namespace hccl::api
