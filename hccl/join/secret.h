// The job's secret from a file, for joins that carry no root info.
#pragma once

#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl::join {

/// A key out of the content (every byte of it, 1 to 65,536) of a regular file that belongs to this
/// process's effective user and is closed to all other users; the last part of the path may not be
/// a link. kPara for a file that breaks a rule, kOpenFileFailure for one that cannot be read. No
/// error shows the content, and no copy of it stays in memory.
Result<Key> read_secret_file(const std::string& path);

}  // namespace hccl::join
