// The tuning as a file: JSON if its name ends in .json, else binary.
#pragma once

#include <optional>
#include <string>

#include "hccl/core/tuning.h"

namespace hccl::core {

/// Nothing if there is no such file, or an empty one. kOpenFileFailure: it cannot be read; else as
/// files::decode. The text names the file.
Result<std::optional<Tuning>> read_tuning(const std::string& path);

/// Puts the entry into the file, beside those that are in it, in one step: whoever reads meanwhile
/// sees the old file or the new one. Of two jobs that do so at once one may lose its entry, which
/// is then measured again. A file that is no tuning is left alone: kPara; kOpenFileFailure.
Status keep_tuning(const std::string& path, const TuningEntry& entry);

}  // namespace hccl::core
