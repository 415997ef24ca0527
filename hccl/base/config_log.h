// Reads the level of the log, and where it goes, from variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hccl/base/status.h"

namespace hccl {

/// HCCL_LOG, else ASCEND_GLOBAL_LOG_LEVEL and ASCEND_SLOG_PRINT_TO_STDOUT, in the form that
/// make_logger() takes. kPara: an invalid value. `get` returns nothing for what is not set.
Result<std::string> read_log(const std::function<std::optional<std::string>(const char*)>& get);

}  // namespace hccl
