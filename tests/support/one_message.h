// A single send or receive of a communicator of core.
#pragma once

#include "hccl/core/communicator.h"

namespace hccl::testing {

inline Status send_one(core::Communicator& c, int peer, const void* data, std::uint64_t count,
                       DataType type) {
  exec::Transfer transfer{true, peer, const_cast<void*>(data), count, type, 0};
  return c.operations().exchange({&transfer, 1});
}

inline Status recv_one(core::Communicator& c, int peer, void* data, std::uint64_t count,
                       DataType type) {
  exec::Transfer transfer{false, peer, data, count, type, 0};
  return c.operations().exchange({&transfer, 1});
}

}  // namespace hccl::testing
