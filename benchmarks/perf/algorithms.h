// Lists the algorithms that a communicator may choose, and makes a communicator that always takes
// one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/acl/acl_base.h"
#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

namespace hccl_perf {

/// Returns false if the library lacks the call that lists algorithms.
bool can_describe();
/// Collective: all ranks get rank 0's list. `shared`: whether all ranks can reach the buffers.
/// `bytes`: the length of a rank's longest input. Ends the program with a message on a failure.
std::vector<HcclAlgorithmInfo> describe(HcclComm comm, std::string op, std::uint64_t bytes,
                                        bool shared, int rank);
/// Returns "level0:NAME", in the form of HCCL_ALGO.
std::string key(const HcclAlgorithmInfo& algorithm);
/// Collective: makes a communicator with the ranks of `world`, which must be a world communicator,
/// that always uses this algorithm ("level0:NAME"). `id` must differ each time.
HcclComm with_algorithm(HcclComm world, const std::string& key, std::uint64_t id, int rank,
                        int ranks);

/// Ends the program with a message if the library's call failed.
void check(HcclResult result, const char* what);
void check(aclError result, const char* what);

}  // namespace hccl_perf
