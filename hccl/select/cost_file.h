// The cost table as a file (HCCL_TUNE_FILE): JSON if its name ends in .json, otherwise binary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hccl/select/costs.h"

namespace hccl::select {

/// Returns nothing if the file does not exist or is empty. kOpenFileFailure: the file cannot be
/// read; kPara: the file is not a cost table, or has impossible numbers; kNotSupport: the file has
/// a newer version, or the plugin for files is missing. The error text names the file.
Result<std::optional<CostTable>> read_costs(const std::string& path);

/// These functions convert a table to and from the bytes that rank 0 sends to the other ranks. They
/// fail as read_costs() does.
Result<std::string> to_bytes(const CostTable& table);
Result<CostTable> from_bytes(std::string_view bytes);

/// Adds the entry to the file, next to the entries in it. The file is replaced in one step: a
/// concurrent reader sees either the old file or the new one. If two jobs add an entry at the same
/// time, one entry may be lost and is then measured again. kPara: the file is not a cost table, and
/// stays unchanged. kOpenFileFailure: the file cannot be read or written.
Status keep_costs(const std::string& path, const CostEntry& entry);

}  // namespace hccl::select
