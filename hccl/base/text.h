// Numbers and lists in texts from users or launchers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hccl {

/// Reads a whole number of at most ten decimal digits. Returns nothing for any other text, for
/// example a number with a sign or a blank.
std::optional<std::uint64_t> decimal(std::string_view text);

/// Returns the parts between the separators, as views of the text. n separators give n + 1 parts.
std::vector<std::string_view> split_at(std::string_view text, char separator);

/// At most 64 bytes of a text from outside, made printable for an error message.
std::string shown(std::string_view text);

}  // namespace hccl
