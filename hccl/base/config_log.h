// Reads the level and the destination of the log from variables, and makes the error of an invalid
// variable.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hccl/base/status.h"

namespace hccl {

/// Returns kPara: the variable `name` has an invalid value. `expected` describes the valid values.
Status invalid(std::string_view name, std::string_view value, std::string_view expected);

/// Reads HCCL_LOG, else ASCEND_GLOBAL_LOG_LEVEL and ASCEND_SLOG_PRINT_TO_STDOUT. Returns the level
/// in the form that make_logger() takes. kPara: an invalid value. `get` returns nothing for a
/// variable that is not set.
Result<std::string> read_log(const std::function<std::optional<std::string>(const char*)>& get);

}  // namespace hccl
