#include "hccl/base/config_log.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hccl {
Status invalid(std::string_view name, std::string_view value, std::string_view expected) {
  // A long value must not push the variable's name out of the text.
  std::size_t most = std::min<std::size_t>(value.size(), 512);
  while (most < value.size() && most > 0 && (value[most] & 0xC0) == 0x80) --most;  // UTF-8
  return Status(Code::kPara, "EI0001: Value \"" + std::string(value.substr(0, most)) +
                                 (value.size() > most ? "…" : "") + "\" for environment variable " +
                                 std::string(name) +
                                 " is invalid. Expected value: " + std::string(expected) + ".");
}

Result<std::string> read_log(const std::function<std::optional<std::string>(const char*)>& get) {
  // In the order of Ascend's numbers, which begin at 0. Trace, the last, has no number.
  constexpr std::array<std::string_view, 6> kWords = {"debug", "info", "warn",
                                                      "error", "off",  "trace"};
  if (const auto word = get("HCCL_LOG")) {
    if (std::ranges::find(kWords, *word) != kWords.end()) return *word;
    return invalid("HCCL_LOG", *word, "trace, debug, info, warn, error or off");
  }
  std::string level = "warn";
  if (const auto number = get("ASCEND_GLOBAL_LOG_LEVEL"); number && !number->empty()) {
    if (number->size() > 1 || number->front() < '0' || number->front() > '4') {
      return invalid("ASCEND_GLOBAL_LOG_LEVEL", *number,
                     "0 (debug), 1 (info), 2 (warning), 3 (error) or 4 (none)");
    }
    level = kWords[static_cast<std::size_t>(number->front() - '0')];
  }
  if (const auto on = get("ASCEND_SLOG_PRINT_TO_STDOUT"); on && !on->empty()) {
    if (*on != "0" && *on != "1") return invalid("ASCEND_SLOG_PRINT_TO_STDOUT", *on, "0 or 1");
    if (*on == "1") level += " stdout";
  }
  return level;
}

}  // namespace hccl
