// The table of costs as a file (HCCL_TUNE_FILE): JSON if its name ends in .json, else binary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hccl/select/costs.h"

namespace hccl::select {

/// Nothing if there is no such file, or an empty one. kOpenFileFailure: it cannot be read; kPara:
/// it is no table, or has numbers that cannot be; kNotSupport: of a newer version, or there is no
/// plugin for files. The text names the file.
Result<std::optional<CostTable>> read_costs(const std::string& path);

/// The table as rank 0 sends it to the other ranks. Both fail as read_costs() does.
Result<std::string> to_bytes(const CostTable& table);
Result<CostTable> from_bytes(std::string_view bytes);

/// Puts the entry into the file, beside those that are in it, in one step: whoever reads meanwhile
/// sees the old file or the new one. Of two jobs that do so at once one may lose its entry, which
/// is then measured again. A file that is no table is left alone: kPara; kOpenFileFailure.
Status keep_costs(const std::string& path, const CostEntry& entry);

}  // namespace hccl::select
