// Ranks as forked processes that use only the public C headers.
#pragma once

#include <cstring>

#include "hccl/hccl.h"
#include "tests/support/processes.h"

namespace hccl::testing {

/// Called in a child: rank 0 makes the root info and puts it on the board, and all ranks join.
inline HcclResult join_public(Board& board, int size, int rank, HcclComm* comm) {
  HcclRootInfo info;
  if (rank == 0) {
    const HcclResult made = HcclGetRootInfo(&info);
    if (made != HCCL_SUCCESS) return made;
    std::memcpy(board.info.data(), info.internal, board.info.size());
    board.open = true;
  }
  if (!eventually([&] { return board.open.load(); })) return HCCL_E_TIMEOUT;
  std::memcpy(info.internal, board.info.data(), board.info.size());
  return HcclCommInitRootInfo(static_cast<std::uint32_t>(size), &info,
                              static_cast<std::uint32_t>(rank), comm);
}

}  // namespace hccl::testing
