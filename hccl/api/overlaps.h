// The one check of memory that buffers share. Without it an operation would read what it has
// already overwritten, and succeed with wrong data.
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

/// The buffers of an operation whose blocks have one length, in elements. In place, `out` lies
/// `in_place` behind `in`.
struct Places {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t in_place = 0;
};
inline Places places(const Call& call, int rank, int size) {
  const auto own = static_cast<std::int64_t>(call.count) * rank;
  const std::uint64_t one = call.count, all = one * static_cast<std::uint64_t>(size);
  const bool root = rank == call.root;
  switch (call.op) {
    case Op::kReduce:
      return {one, root ? one : 0};
    case Op::kScatter:
      return {root ? all : 0, one, own};
    case Op::kReduceScatter:
      return {all, one, own};
    case Op::kAllGather:
      return {one, all, -own};
    case Op::kAllToAll:  // never in place: its check refuses one buffer for both
      return {all, all};
    default:
      return {one, one};
  }
}

Status compare(const core::Communicator& comm, const Call& call, Places places, bool in_place);
Status compare_blocks(const core::Communicator& comm, const Call& call);

inline bool mapped_twice(const core::Communicator& comm) {
  return comm.heap() != nullptr && comm.heap()->mapped_twice();
}
/// Modulo 2^64: each begins at least as far behind the other one as that one is long.
inline bool apart(std::uintptr_t a, std::uint64_t a_bytes, std::uintptr_t b,
                  std::uint64_t b_bytes) {
  return b - a >= a_bytes && a - b >= b_bytes;
}

/// kPara: the buffers share memory, other than in place. The usual call costs two comparisons.
inline Status check_overlaps(const core::Communicator& comm, const Call& call) {
  if (has_blocks(call.op)) return compare_blocks(comm, call);
  const Places is = places(call, comm.rank(), comm.size());
  const std::uint64_t element = size_of(call.type);
  const auto in = address(call.in), out = address(call.out);
  const bool in_place = out - in == static_cast<std::uint64_t>(is.in_place) * element;
  if ((in_place || apart(in, is.in * element, out, is.out * element)) && !mapped_twice(comm)) {
    return {};
  }
  return compare(comm, call, is, in_place);
}

/// The same for sends and receives that run side by side.
Status check_overlaps(const core::Communicator& comm, std::span<const exec::Transfer> transfers);

}  // namespace hccl::api
