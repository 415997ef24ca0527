// One rank of a world, as the other ranks know it.
#pragma once

#include <cstdint>
#include <string>

namespace hccl::join {

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::string cores = {};    ///< cores that the rank may run on: one bit each, as from core_mask()
  std::string host = {};     ///< host identity: ranks with the same identity may share memory
  std::string address = {};  ///< address for connections from peers
};

}  // namespace hccl::join
