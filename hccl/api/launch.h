// Joins a world with the information of a program or its launcher: nothing, a rank table, or an
// environment.
#pragma once

#include <optional>
#include <string>

#include "hccl/api/state.h"

namespace hccl::api {

/// Root info with a fresh secret and id, and its coordinator running in this process; `one_host`:
/// all ranks are on this host.
Result<join::RootInfo> make_root(bool one_host = false);

/// Joins the ranks that the launcher started: rank table, PMIx (mpirun), torchrun, Slurm, or a
/// world of one.
Result<CommunicatorPtr> join_by_launcher(const std::string& name);

/// Joins the ranks of a rank-table file, or of its text; `identify` names this rank as the table
/// does. Without `config`, the environment's.
Result<CommunicatorPtr> join_by_file(const std::string& path, const std::string& identify,
                                     const std::string& name,
                                     const std::optional<Config>& config = std::nullopt);
Result<CommunicatorPtr> join_by_text(const std::string& table, const std::string& identify,
                                     const std::string& name);

}  // namespace hccl::api
