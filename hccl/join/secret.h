// Reads the job's secret from a file, for jobs in which rank 0 sends no root info to the other
// ranks.
#pragma once

#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/config.h"
#include "hccl/base/status.h"

namespace hccl::join {

/// Makes a key from all bytes of a regular file. The file must have at most 65,536 bytes, and at
/// least 16 that are not all equal. It must belong to this process's effective user and be closed
/// to all other users; the last part of the path must not be a link. kPara for a file that breaks a
/// rule, kOpenFileFailure for a file that cannot be read. No error shows the content, and no copy
/// of the content stays in memory.
Result<Key> read_secret_file(const std::string& path);

/// The secret of a job whose ranks are on several hosts: derived from the secret in the file.
/// Without a file the call fails or, with HCCL_ALLOW_INSECURE, returns a secret that anybody can
/// compute. `address`: of rank 0, for the log.
Result<Key> job_secret(const std::string& job, const std::string& address, const Config& config);

}  // namespace hccl::join
