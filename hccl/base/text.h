// Numbers and lists in texts that a user or a launcher wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hccl {

/// A whole number of at most ten decimal digits; nothing for any other text, signs and blanks
/// included.
std::optional<std::uint64_t> decimal(std::string_view text);

/// What an error number of the system means, and what to do where the user can do something: raise
/// the limit of descriptors.
std::string error_text(int error);

/// The parts between the separators: one more than there are separators. They live as long as the
/// text does.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace hccl
