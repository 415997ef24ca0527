// Expands Slurm's short forms of lists of hosts and of counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::join {

/// The largest number of hosts in a list.
inline constexpr std::size_t kHostlistCap = 65536;
/// The largest size of a host's name, roughly: a real name has at most 253 bytes.
inline constexpr std::size_t kHostNameCap = 255;

/// Expands "node[03-05,9],x1" to node03, node04, node05, node9, x1. A name with several brackets
/// expands to all combinations, in which the last bracket changes fastest. kPara for text that is
/// no host list or names too many hosts.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

/// Expands "2(x3),1" to 2, 2, 2, 1: Slurm's tasks per node. kPara for any other text.
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace hccl::join
