// The algorithms that a communicator may choose from, and a communicator that always takes one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

namespace hccl_perf {

/// False if the library has no call that lists algorithms.
bool can_describe();
/// Collective: all ranks get rank 0's list for buffers that all ranks reach (`shared`), or do not.
/// `bytes` is the longest input of a rank. Ends the program with a message on a failure.
std::vector<HcclAlgorithmInfo> describe(HcclComm comm, std::string op, std::uint64_t bytes,
                                        bool shared, int rank);
/// "level0:NAME", as HCCL_ALGO has it.
std::string key(const HcclAlgorithmInfo& algorithm);
/// Collective: the same ranks as `world`, which must be a world, with this algorithm
/// ("level0:NAME"). `id` is another one each time.
HcclComm with_algorithm(HcclComm world, const std::string& key, std::uint64_t id, int rank,
                        int ranks);

/// Ends the program with a message, where the library's call failed.
void check(HcclResult result, const char* what);

}  // namespace hccl_perf
