// From what a program or its launcher knows (nothing, a rank table, an environment) to a joined
// world.
#pragma once

#include <optional>
#include <string>

#include "hccl/api/state.h"

namespace hccl::api {

/// Root info with fresh secret and id, and its coordinator running in this process; `one_host`: no
/// rank will come from elsewhere.
Result<join::RootInfo> make_root(bool one_host = false);

/// Joins what the launcher started: rank table, PMIx (mpirun), torchrun, Slurm, or a world of one.
Result<CommunicatorPtr> join_by_launcher(const std::string& name);

/// Joins the ranks of a rank-table file, or of its text; identify is this rank in the table's
/// terms. Without `config`, the environment's.
Result<CommunicatorPtr> join_by_file(const std::string& path, const std::string& identify,
                                     const std::string& name,
                                     const std::optional<Config>& config = std::nullopt);
Result<CommunicatorPtr> join_by_text(const std::string& table, const std::string& identify,
                                     const std::string& name);

}  // namespace hccl::api
