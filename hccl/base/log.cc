#include "hccl/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <string>

namespace hccl {

Logger make_logger(std::string_view level, std::string_view who) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_pattern("hccl %H:%M:%S.%f %L %n: %v");
  auto logger = std::make_shared<spdlog::logger>(std::string(who), std::move(sink));
  logger->set_level(spdlog::level::from_str(std::string(level)));
  return logger;
}

}  // namespace hccl
