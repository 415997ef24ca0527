// The job's secret from a file, for joins without root info from rank 0.
#pragma once

#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/config.h"
#include "hccl/base/status.h"

namespace hccl::join {

/// A key from the content (every byte of it, 16 to 65,536, not all alike) of a regular file. The
/// file must belong to this process's effective user and be closed to all other users; the last
/// part of the path must not be a link. kPara for a file that breaks a rule, kOpenFileFailure for a
/// file that cannot be read. No error shows the content, and no copy of the content stays in
/// memory.
Result<Key> read_secret_file(const std::string& path);

/// The secret of a job whose ranks are on several hosts: derived from the secret in the file.
/// Without a file it is an error, or a secret that anybody can compute (HCCL_ALLOW_INSECURE).
/// `address`: of rank 0.
Result<Key> job_secret(const std::string& job, const std::string& address, const Config& config);

}  // namespace hccl::join
