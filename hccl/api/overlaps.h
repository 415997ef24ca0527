// Checks that buffers share memory only where the API allows this. Without the check an operation
// could overwrite its own input, and succeed with wrong results.
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
  int number = -1;   ///< number of the block, message or gradient; -1: none
};
inline std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

/// kPara: a written extent shares memory with another extent. `hint` is the advice at the end of
/// the error text.
Status check_apart(const core::Communicator& comm, std::vector<Extent> extents, const char* hint);

Status compare(const core::Communicator& comm, const Call& call);
Status compare_blocks(const core::Communicator& comm, const Call& call);

inline bool mapped_twice(const core::Communicator& comm) {
  return comm.membership().heap != nullptr && comm.membership().heap->mapped_twice();
}
/// True if the ranges do not overlap: modulo 2^64, each range begins at or after the end of the
/// other range.
inline bool apart(std::uintptr_t a, std::uint64_t a_bytes, std::uintptr_t b,
                  std::uint64_t b_bytes) {
  return b - a >= a_bytes && a - b >= b_bytes;
}

/// kPara: the buffers share memory, but the call is not in place. For the usual calls the inline
/// check is enough: allreduce and broadcast with a single buffer, and calls whose buffers lie far
/// apart.
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
