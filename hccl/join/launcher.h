// Finds the launcher that started this process, and the job that it describes. Pure: reads only the
// variables of this process and of the processes that it descends from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/process.h"
#include "hccl/base/status.h"
#include "hccl/control/roster.h"

namespace hccl::join {

enum class LauncherKind { kAlone, kRankTable, kPmix, kTorchrun, kSlurm, kHydra };

struct Launch {
  LauncherKind kind = LauncherKind::kAlone;
  int rank = 0;        ///< -1 for kRankTable: the table and `identify` give the rank
  int size = 1;        ///< 0 when the environment does not say: kRankTable, kPmix without Open MPI
  int local_rank = 0;  ///< among the job's ranks on this host; -1 when unknown
  int local_size = 1;  ///< 0 when unknown
  /// The address or host name where rank 0 listens (see resolve()). Empty for kAlone, kRankTable
  /// and kPmix: those get the address in other ways.
  std::string root_address = {};
  std::uint16_t root_port = 0;
  /// Names the job, the same on all its ranks. If there is no secret, an id is derived from it.
  /// Empty for kAlone, and for kRankTable, where RankTable::digest_text has this role.
  std::string job = {};
  std::string rank_table_path = {};  ///< RANK_TABLE_FILE
  std::string identify = {};         ///< RANK_ID
  control::Attempt attempt = {};     ///< of torchelastic's agent
  pid_t first = 0;  ///< the first process that the launcher started as this rank; 0: not known
};

/// Finds the launcher. Variables of several launchers may be present: RANK_TABLE_FILE, PMIx
/// (mpirun), torchrun, Slurm (srun), hydra (mpiexec of MPICH and Intel). The innermost launcher
/// counts. `line` is this process and its ancestors (see line_of()): the launcher is the nearest
/// process whose variables have other values. If one process gave the variables of several
/// launchers, they must agree, and the first in this order counts. If the launcher is not among the
/// ancestors, as in a container, they are not compared, and the first in this order counts.
///
/// Without any launcher the process is alone, unless a variable shows that a launcher of another
/// kind has started it as one of several. `base_port` is Config::base_port. kPara: a value is
/// malformed, missing or contradicts another; the text names the variable. kNotSupport: HCCL's
/// start with CM_CHIEF_*, launchers that cannot be read, and hydra between hosts.
Result<Launch> detect_launcher(std::uint16_t base_port,
                               const Config::GetEnv& variables = environment,
                               const std::vector<Process>& line = {});

/// The variable in which this launcher gives a process its rank; null for kAlone.
const char* rank_variable(LauncherKind kind);

/// Whether torchrun has started both as the same rank of a job, in the same attempt or in two
/// attempts.
bool is_same_rank(const Launch& one, const Launch& other);

/// A part of the job's name, the same on all its ranks: HCCL_JOB_ID. Without it and inside one
/// host, the scheduler's job and its number of restarts (ssh would not carry these variables to
/// another host). Empty without either.
std::string job_id(bool one_host, const Config::GetEnv& variables = environment);

}  // namespace hccl::join
