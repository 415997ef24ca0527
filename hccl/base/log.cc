#include "hccl/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string>

#include "hccl/base/mutex.h"
#include "hccl/base/thread.h"

namespace hccl {
namespace {

constexpr std::string_view kToOutput = " stdout";

// LogLevel has spdlog's numbers.
static_assert(static_cast<int>(LogLevel::kTrace) == spdlog::level::trace);
static_assert(static_cast<int>(LogLevel::kError) == spdlog::level::err);
static_assert(static_cast<int>(LogLevel::kOff) == spdlog::level::off);

}  // namespace

void Log::line(LogLevel level, fmt::string_view text, fmt::format_args args) const {
  if (!writes(level)) return;
  const NotCancelled not_cancelled;
  const FilesWithinLimit within;  // the log may be a file
  try {
    write_(level, fmt::vformat(text, args));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // If memory is exhausted, the line is lost and the program goes on.
  }
}

Logger make_logger(std::string_view level, std::string_view who) {
  // Each logger has a lock of its own. If another thread held spdlog's common lock while the
  // process forks, the child would wait for the lock forever.
  const bool to_output = level.ends_with(kToOutput);
  if (to_output) level.remove_suffix(kToOutput.size());
  spdlog::sink_ptr sink;
  if (to_output) {
    sink = std::make_shared<spdlog::sinks::stdout_sink_st>();
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  }
  sink->set_pattern("hccl %H:%M:%S.%f %L %n: %v");
  auto logger = std::make_shared<spdlog::logger>(std::string(who), std::move(sink));
  logger->set_level(spdlog::level::trace);
  return std::make_shared<const Log>(
      static_cast<LogLevel>(spdlog::level::from_str(std::string(level))),
      [logger = std::move(logger), mutex = std::make_shared<Mutex>(LockLevel::kLog)](
          LogLevel at, std::string_view line) {
        const MutexLock lock(*mutex);
        logger->log(static_cast<spdlog::level::level_enum>(at),
                    spdlog::string_view_t(line.data(), line.size()));
      });
}

}  // namespace hccl
