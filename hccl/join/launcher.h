// Which launcher started this process, and the job it describes. Pure: reads variables only.
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
  /// and kPmix, where it is learnt by other ways.
  std::string root_address = {};
  std::uint16_t root_port = 0;
  /// Names the job, the same on all its ranks; what an id is derived from when there is no secret.
  /// Empty for kAlone, and for kRankTable, where RankTable::digest_text does it.
  std::string job = {};
  std::string rank_table_path = {};  ///< RANK_TABLE_FILE
  std::string identify = {};         ///< RANK_ID
};

/// Asks, in this order: RANK_TABLE_FILE, PMIx (mpirun), torchrun, Slurm (srun); else the process is
/// alone. `base_port` is Config::base_port. Values that are malformed, missing or contradict each
/// other are kPara with a text that names the variable; HCCL's CM_CHIEF_* start is kNotSupport.
Result<Launch> detect_launcher(std::uint16_t base_port,
                               const Config::GetEnv& variables = environment);

}  // namespace hccl::join
