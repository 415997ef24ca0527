// Reads a launcher's variables from the environment of this process or of another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hccl/base/config.h"
#include "hccl/base/config_log.h"
#include "hccl/base/status.h"
#include "hccl/base/text.h"

namespace hccl::join {

inline constexpr std::int64_t kMostRanks = 1 << 20;  // keeps int arithmetic from overflow
inline constexpr std::int64_t kMost32Bits = 0xffffffff;

/// The variables of one process. Errors (kPara) name the variable and the expected value. `because`
/// is the variable whose presence makes another one necessary. Keeps a reference to `variables`.
class Environment {
 public:
  explicit Environment(const Config::GetEnv& variables) : variables_(variables) {}

  /// Nothing for a variable that is not set, is empty, or has HCCL's value for "not set".
  std::optional<std::string> get(const char* name) const {
    const char* value = variables_(name);
    if (value == nullptr || *value == '\0' || std::string_view(value) == "EmptyString") {
      return std::nullopt;
    }
    return std::string(value);
  }
  bool has(const char* name) const { return get(name).has_value(); }

  Result<std::string> need(const char* name, const char* because) const {
    auto value = get(name);
    if (!value.has_value()) {
      return invalid(name, "", "a value, as " + std::string(because) + " is set");
    }
    return *value;
  }
  Result<std::int64_t> number(const char* name, const char* because, std::int64_t low,
                              std::int64_t high) const {
    HCCL_ASSIGN_OR_RETURN(const std::string text, need(name, because));
    const auto value = decimal(text);
    if (!value || static_cast<std::int64_t>(*value) < low ||
        static_cast<std::int64_t>(*value) > high) {
      return invalid(name, shown(text),
                     "an integer " + std::to_string(low) + " to " + std::to_string(high));
    }
    return static_cast<std::int64_t>(*value);
  }
  std::optional<int> device() const {
    const auto text = has("ASCEND_DEVICE_ID") ? get("ASCEND_DEVICE_ID") : get("DEVICE_ID");
    const auto number = text ? decimal(*text) : std::nullopt;
    if (!number || *number > kMostRanks) return std::nullopt;
    return static_cast<int>(*number);
  }
  Result<std::int64_t> number_or(const char* name, std::int64_t otherwise, std::int64_t low,
                                 std::int64_t high) const {
    if (!has(name)) return otherwise;
    return number(name, name, low, high);
  }

 private:
  const Config::GetEnv& variables_;
};

}  // namespace hccl::join
