// The algorithms that a communicator may choose from, as the library describes them, and a
// communicator that always takes one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

namespace hccl_perf {

/// An algorithm for one operation and size.
struct Algorithm {
  std::string level;  ///< level0: inside a host; level1: between hosts
  std::string name;   ///< unique within its level
  bool eligible = false;
  bool chosen = false;  ///< what the selector takes by itself
  std::string reason;   ///< why it is not eligible

  std::string key() const { return level + ":" + name; }
};

/// False if the library has no call that lists algorithms.
bool can_describe();
/// Collective: all ranks get rank 0's list for buffers that all ranks reach (`shared`), or do not.
/// `bytes` is the longest input of a rank. Ends the program with a message on a failure.
std::vector<Algorithm> describe(HcclComm comm, std::string op, std::uint64_t bytes, bool shared,
                                int rank);
/// Collective: the same ranks as `world`, which must be a world, with this algorithm
/// ("level0:NAME"). `id` is another one each time.
HcclComm with_algorithm(HcclComm world, const std::string& key, std::uint64_t id, int rank,
                        int ranks);

/// Ends the program with a message, where the library's call failed.
void check(HcclResult result, const char* what);

}  // namespace hccl_perf
