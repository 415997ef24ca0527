#include "hccl/base/text.h"

#include <algorithm>
#include <charconv>

namespace hccl {

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.size() > 10 || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 64));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return out.size() < text.size() ? out + "..." : out;
}

}  // namespace hccl
