#include "hccl/kernels/store_rule.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>

namespace hccl::kernels {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// The number of bytes in a text such as "32768K", "32M" or "64"; 0 for any other text.
std::size_t bytes_of(const std::string& text) {
  std::size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number > (std::size_t{1} << 30)) return 0;
  if (unit == end) return number;
  return unit + 1 == end && *unit == 'K'   ? number << 10
         : unit + 1 == end && *unit == 'M' ? number << 20
                                           : 0;
}

/// The number of cores in a mask such as "00000000,000000ff".
std::size_t cores_in(const std::string& mask) {
  int cores = 0;
  for (const char digit : mask) {
    unsigned value = 0;
    if (std::from_chars(&digit, &digit + 1, value, 16).ec == std::errc()) {
      cores += std::popcount(value);
    }
  }
  return static_cast<std::size_t>(cores);
}

}  // namespace

StoreRule StoreRule::of_this_machine(int ranks, const std::string& system) {
  std::size_t level = 0;
  std::size_t bytes = 0;
  std::size_t sharing = 0;
  for (int index = 0; index < 16; ++index) {
    const std::string cache = system + "/cpu0/cache/index" + std::to_string(index);
    const std::size_t its_level = bytes_of(first_line(cache + "/level"));
    if (its_level <= level || first_line(cache + "/type") == "Instruction") continue;
    level = its_level;
    bytes = bytes_of(first_line(cache + "/size"));
    sharing = cores_in(first_line(cache + "/shared_cpu_map"));
  }
  if (bytes == 0) return {};
  // Counts the machine's cores, because this process may be bound to one core.
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const std::size_t cores =
      std::max<std::size_t>({1, sharing, online > 0 ? static_cast<std::size_t>(online) : 1});
  const auto of = static_cast<std::size_t>(std::max(1, ranks));
  const std::size_t on_this_cache = (of * std::max<std::size_t>(1, sharing) + cores - 1) / cores;
  return {bytes / 8 * 5 / on_this_cache};
}

}  // namespace hccl::kernels
