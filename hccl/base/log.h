// Logging through spdlog, to standard error; the level comes from HCCL_LOG. A Logger belongs to a
// communicator tree and carries "rank R" in every line.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string_view>

namespace hccl {

using Logger = std::shared_ptr<spdlog::logger>;

/// level: trace, debug, info, warn, error or off. Every line contains `who`, such as "rank 3".
Logger make_logger(std::string_view level, std::string_view who);

}  // namespace hccl
