// One rank of a world, as the others know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/control/roster.h"

namespace hccl::join {

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::string cores = {};     ///< cores that the rank may run on: one bit each, as from core_mask()
  std::string host = {};      ///< host identity: ranks with equal identities may share memory
  std::string address = {};   ///< local address for peers
  std::uint64_t started = 0;  ///< when its process started (Process::started); 0: not known
};

/// By rank.
std::vector<Member> members_of(const control::Roster& roster);

}  // namespace hccl::join
