// The transports that tests of communicators take in turn.
#pragma once

#include <string>
#include <vector>

#include "transport/registry.h"

namespace hccl::testing {

inline std::vector<std::string> transports() {
  std::vector<std::string> names{"auto"};
  for (const auto& backend : transport::backends()) {
    // "auto" is shm between the ranks of one host.
    if (backend.name != "shm") names.emplace_back(backend.name);
  }
  return names;
}

}  // namespace hccl::testing
