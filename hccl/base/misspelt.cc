// Finds misspelt variables: names that begin with HCCL_ and have a few wrong letters, or a word
// too many at their end.
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/text.h"

namespace hccl {
namespace {

constexpr std::string_view kPrefix = "HCCL_";

// Returns the distance of two words: the fewest letters to add, remove or replace.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    std::size_t corner = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = corner + (letter == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, corner + 1});
    }
  }
  return row.back();
}

std::string letters(std::string_view name) {
  std::string out(name.substr(kPrefix.size()));
  std::erase(out, '_');
  return out;
}

}  // namespace

std::vector<std::string> misspelt(const char* const* variables) {
  // The two read() functions ask for every variable that they know. This list has the other
  // variables: join reads HCCL_JOB_ID, and Python reads the rest.
  std::vector<std::string> known{"HCCL_JOB_ID", "HCCL_AS_GLOO", "HCCL_HALF", "HCCL_COMPARE_NAMES",
                                 "HCCL_TORCH_FORM"};
  const auto note = [&](const char* name) -> const char* {
    if (std::string_view(name).starts_with(kPrefix)) known.emplace_back(name);
    return nullptr;
  };
  static_cast<void>(Config::read(note));
  static_cast<void>(DeviceConfig::read(note));
  std::vector<std::string> texts;
  for (const char* const* each = variables; each != nullptr && *each != nullptr; ++each) {
    const std::string name(split_at(*each, '=').front());
    const bool right = std::find(known.begin(), known.end(), name) != known.end();
    if (right || !name.starts_with(kPrefix)) continue;
    const std::string word = letters(name);
    const auto far = [&](const std::string& other) -> std::size_t {
      return name.starts_with(other + "_") ? 1 : distance(word, letters(other));  // HCCL_LOG_LEVEL
    };
    const auto nearest = std::min_element(
        known.begin(), known.end(), [&](const auto& a, const auto& b) { return far(a) < far(b); });
    const auto limit = std::max(std::min<std::size_t>(2, word.size() / 3), word.size() / 5);
    if (far(*nearest) > limit) continue;
    texts.push_back(name + " is no variable of this library and has no effect; the nearest is " +
                    *nearest);
  }
  return texts;
}

}  // namespace hccl
