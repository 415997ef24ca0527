// Finds the launcher that started this process, and the job that it describes. Reads only the
// variables of this process and of its ancestors.
#pragma once

#include <cstdint>
#include <optional>
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
  int size = 1;        ///< 0 when no variable gives it: kRankTable, kPmix without Open MPI
  int local_rank = 0;  ///< among the job's ranks on this host; -1 when unknown
  int local_size = 1;  ///< 0 when unknown
  /// The address or host name where rank 0 listens (see resolve()). Empty for kAlone, kRankTable
  /// and kPmix: their ranks get the address in other ways.
  std::string root_address = {};
  std::uint16_t root_port = 0;
  /// The name of the job, equal on all its ranks. Between hosts, the job's secret and id are
  /// derived from the name and from the secret file, if there is one. Empty for kAlone, and for
  /// kRankTable, where RankTable::digest_text has this role.
  std::string job = {};
  std::string rank_table_path = {};  ///< RANK_TABLE_FILE
  std::string identify = {};         ///< RANK_ID
  std::optional<int> device = {};    ///< ASCEND_DEVICE_ID, else DEVICE_ID; for kRankTable
  control::Attempt attempt = {};     ///< of torchelastic's agent
  pid_t first = 0;  ///< the first process that the launcher started as this rank; 0: not known
};

/// Finds the launcher. Variables of several launchers may be present: RANK_TABLE_FILE, PMIx
/// (mpirun), torchrun, Slurm (srun), hydra (mpiexec of MPICH and Intel). The innermost launcher
/// counts. `line` is this process and its ancestors (see line_of()). The nearest process of `line`
/// in which a launcher's variables have other values gave these variables. If one process gave the
/// variables of several launchers, the launchers must agree, and the first in this order counts. If
/// the process that gave them is not in `line`, as in a container, the launchers are not compared,
/// and the first in this order counts.
///
/// Without any launcher the process is alone, unless a variable shows that a launcher of another
/// kind has started it as one of several. `base_port` is Config::base_port. kPara: a value is
/// malformed, missing or contradicts another; the text names the variable. kNotSupport: HCCL's
/// start with CM_CHIEF_*, launchers of other kinds, and hydra between hosts.
Result<Launch> detect_launcher(std::uint16_t base_port,
                               const Config::GetEnv& variables = environment,
                               const std::vector<Process>& line = {});

/// The variable in which this launcher gives a process its rank; null for kAlone.
const char* rank_variable(LauncherKind kind);

/// The device that the environment gives this process: ASCEND_DEVICE_ID, else DEVICE_ID.
std::optional<int> device_of(const Config::GetEnv& variables = environment);

/// Whether torchrun has started both processes as the same rank of a job, in the same attempt or in
/// two attempts.
bool is_same_rank(const Launch& one, const Launch& other);

/// A part of the job's name, equal on all ranks of the job: HCCL_JOB_ID or, if that is not set and
/// all ranks are on one host, the scheduler's job and the number of its restarts (ssh would not
/// carry these variables to another host). Empty if none of these variables is set.
std::string job_id(bool one_host, const Config::GetEnv& variables = environment);

}  // namespace hccl::join
