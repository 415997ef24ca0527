// Finds the launcher that started this process, and the job that it describes. Pure: reads only
// variables.
#pragma once

#include <cstdint>
#include <string>

#include "hccl/base/config.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct Launch {
  enum class Kind { kAlone, kRankTable, kPmix, kTorchrun, kSlurm };

  Kind kind = Kind::kAlone;
  int rank = 0;        ///< -1 for kRankTable: the table and `identify` tell
  int size = 1;        ///< 0 when the environment does not say: kRankTable, kPmix without Open MPI
  int local_rank = 0;  ///< among the job's ranks on this host; -1 when unknown
  int local_size = 1;  ///< 0 when unknown
  /// Where rank 0 listens: an address or a host name (see resolve()). Empty for kAlone, kRankTable
  /// and kPmix, which learn it in other ways.
  std::string root_address = {};
  std::uint16_t root_port = 0;
  /// Names the job, the same on all its ranks. If there is no secret, an id is derived from it.
  /// Empty for kAlone, and for kRankTable, where RankTable::digest_text has this role.
  std::string job = {};
  std::string rank_table_path = {};  ///< RANK_TABLE_FILE
  std::string identify = {};         ///< RANK_ID
};

/// Looks for the launchers in this order: RANK_TABLE_FILE, PMIx (mpirun), torchrun, Slurm (srun);
/// without any, the process is alone. `base_port` is Config::base_port. kPara, with a text that
/// names the variable, for values that are malformed, missing or contradict each other. kNotSupport
/// for HCCL's start with CM_CHIEF_*.
Result<Launch> detect_launcher(std::uint16_t base_port,
                               const Config::GetEnv& variables = environment);

}  // namespace hccl::join
