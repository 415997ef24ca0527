// Finds processes of this host that a launcher started as ranks of a job, but that have not joined
// yet. If another process has the rank of such a process, two jobs have one name, or one of the two
// processes is left over from an earlier attempt.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hccl/control/claims.h"
#include "hccl/join/host.h"
#include "hccl/join/launcher.h"

namespace hccl::join {

/// Returns the rank in the job of a process that a launcher started with these values; -1 if the
/// process does not belong to the job.
using RankOf = std::function<int(const Launch&)>;

/// The callbacks for a root. If ranks of two jobs came, `remember` records that, so that later
/// ranks join neither job.
control::Claimants claimants_of(const std::string& job, const RankOf& rank_of,
                                const Config& config);

/// Fails if a launcher has started a younger process of this host, `host`, as the same rank: then
/// this process is left over from an earlier attempt.
Status expect_newest(int rank, const RankOf& rank_of, const std::string& id,
                     const HostIdentity& host);

}  // namespace hccl::join
