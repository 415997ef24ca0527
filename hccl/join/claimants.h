// Processes of this host that a launcher started as ranks of a job, but that have not come yet. If
// the rank of such a process is taken, two jobs have one name, or a rank is left over.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hccl/join/launcher.h"
#include "hccl/join/wire.h"

namespace hccl::join {

/// The rank of a process that was started in this way; -1 if it is not of the job.
using RankOf = std::function<int(const Launch&)>;

/// Only processes of this user, this program and the rank's script, whose job_id() is `id`. A
/// process that a rank has started, or that has started a rank, is none. `members`: all ranks, in
/// order.
std::vector<wire::Member> find_claimants(const std::vector<wire::Member>& members,
                                         const RankOf& rank_of, const std::string& id);

}  // namespace hccl::join
