// One rank of a world, as the others know it.
#pragma once

#include <cstdint>
#include <string>

namespace hccl::join {

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::string cores = {};    ///< cores it may run on: one bit each, as from core_mask()
  std::string host = {};     ///< host identity: ranks with the same one may share memory
  std::string address = {};  ///< local address for peers
};

}  // namespace hccl::join
