#include "hccl/join/hostlist.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>

#include "hccl/base/text.h"

namespace hccl::join {
namespace {

Status bad(std::string_view text, const std::string& why) {
  return Status(Code::kPara, "\"" + shown(text) + "\" " + why);
}

std::optional<std::uint32_t> digits(std::string_view text) {
  const auto value = decimal(text);
  if (!value || text.size() > 9) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

bool host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
         c == ':';
}

// Expands "03-05,9" to 03, 04, 05, 9: numbers are padded to the width of the range's first number.
bool expand_bracket(std::string_view text, std::vector<std::string>& out) {
  for (const std::string_view part : split_at(text, ',')) {
    const auto dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const auto low = digits(first);
    const auto high = dash == std::string_view::npos ? low : digits(part.substr(dash + 1));
    if (!low || !high || *low > *high || *high - *low >= kHostlistCap) return false;
    for (std::uint32_t n = *low; n <= *high; ++n) {
      if (out.size() >= kHostlistCap) return false;
      const std::string number = std::to_string(n);
      out.push_back(std::string(first.size() - std::min(first.size(), number.size()), '0') +
                    number);
    }
  }
  return true;
}

// Removes one name with its brackets from the front of `text`, up to a comma outside brackets, and
// appends the hosts that it names.
bool expand_name(std::string_view& text, std::vector<std::string>& hosts) {
  std::vector<std::string> names = {""};
  while (!text.empty() && text.front() != ',') {
    std::vector<std::string> pieces;
    if (text.front() == '[') {
      const auto close = text.find(']');
      if (close == std::string_view::npos) return false;
      if (!expand_bracket(text.substr(1, close - 1), pieces)) return false;
      text.remove_prefix(close + 1);
    } else {
      const auto end = std::find_if_not(text.begin(), text.end(), host_character);
      if (end == text.begin()) return false;
      pieces.emplace_back(text.begin(), end);
      text.remove_prefix(pieces.front().size());
    }
    if (names.size() * pieces.size() > kHostlistCap) return false;
    if (names.front().size() + pieces.back().size() > kHostNameCap) return false;
    if (pieces.size() == 1) {
      for (std::string& name : names) name += pieces.front();
      continue;
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& piece : pieces) longer.push_back(name + piece);
    }
    names = std::move(longer);
  }
  if (names.front().empty() || hosts.size() + names.size() > kHostlistCap) return false;
  hosts.insert(hosts.end(), names.begin(), names.end());
  return true;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  std::vector<std::string> hosts;
  for (std::string_view rest = text;;) {
    if (!expand_name(rest, hosts)) return bad(text, "is no list of hosts as node[03-05,9],x1");
    if (rest.empty()) return hosts;
    rest.remove_prefix(1);
  }
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (std::string_view part : split_at(text, ',')) {
    std::optional<std::uint32_t> times = 1;
    if (const auto at = part.find("(x"); at != std::string_view::npos && part.back() == ')') {
      times = digits(part.substr(at + 2, part.size() - at - 3));
      part = part.substr(0, at);
    }
    const auto count = digits(part);
    if (!count || !times || *times == 0 || *times > kHostlistCap - counts.size()) {
      return bad(text, "is no list of counts as 2(x3),1");
    }
    counts.insert(counts.end(), *times, static_cast<int>(*count));
  }
  return counts;
}

}  // namespace hccl::join
