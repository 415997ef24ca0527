// The log: lines on standard error that begin with the rank. spdlog writes the lines; only log.cc
// includes spdlog, because each file that formats through spdlog compiles all of fmt.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace hccl {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff = 6 };

/// Formats lines, and passes lines of its level or above to a writer. Threads may share a Log if
/// its writer permits that.
class Log {
 public:
  using Write = std::function<void(LogLevel level, std::string_view line)>;

  Log(LogLevel level, Write write) : level_(level), write_(std::move(write)) {}

  /// Returns whether lines of `level` are written. Call this before computing costly arguments.
  bool writes(LogLevel level) const { return level >= level_; }

  template <class... Args>
  void trace(fmt::format_string<Args...> text, Args&&... args) const {
    line(LogLevel::kTrace, text, fmt::make_format_args(args...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) const {
    line(LogLevel::kInfo, text, fmt::make_format_args(args...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) const {
    line(LogLevel::kWarn, text, fmt::make_format_args(args...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) const {
    line(LogLevel::kError, text, fmt::make_format_args(args...));
  }

 private:
  [[gnu::cold]] void line(LogLevel level, fmt::string_view text, fmt::format_args args) const;

  const LogLevel level_;
  const Write write_;
};

/// A log that several communicators share.
using Logger = std::shared_ptr<const Log>;

/// Makes a log on standard error. level: trace, debug, info, warn, error or off, as in HCCL_LOG.
/// "warn stdout" writes to standard output instead. Each line contains `who`, such as "rank 3".
Logger make_logger(std::string_view level, std::string_view who);

}  // namespace hccl
