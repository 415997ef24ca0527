#include "hccl/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "hccl/base/text.h"

namespace hccl {
namespace {

// Without a limit, cgroups of version 2 write "max", and cgroups of version 1 a number near 2^63.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;
constexpr std::uint64_t kMargin = std::uint64_t{64} << 20;

/// The names of the files of one version of cgroups.
struct Version {
  const char* type;    // type of its file system
  const char* option;  // option of its mount
  const char* limit;
  const char* usage;
  const char* cache;  // name of a line in memory.stat
};
constexpr Version kVersions[] = {
    {"cgroup", "memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
    {"cgroup2", "", "/memory.max", "/memory.current", "inactive_file"},
};

struct Mount {
  std::string at;    // the folder of the mount
  std::string root;  // the cgroup at the top of the mount
};

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::uint64_t number = 0;
  if (std::ifstream file(path); file >> number) return number;
  return std::nullopt;
}

// Returns the number after `name` in the line that begins with `name`.
std::optional<std::uint64_t> field_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return std::nullopt;
}

bool has(std::string_view list, std::string_view name) {
  const auto parts = split_at(list, ',');
  return name.empty() || std::find(parts.begin(), parts.end(), name) != parts.end();
}

// Finds the mount of these cgroups. A line: … root mount options … - type source options
std::optional<Mount> mount_of(const Version& version, const std::string& root) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4 || dash[1] != version.type) continue;
    if (has(dash[3], version.option)) return Mount{words[4], words[3]};
  }
  return std::nullopt;
}

// Returns the path of this process's cgroup. A line: number:controllers:path
std::optional<std::string> cgroup_of(const Version& version, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (*version.option == '\0' ? names.empty() : has(names, version.option)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

std::uint64_t less(std::uint64_t from, std::uint64_t take) { return from > take ? from - take : 0; }

void consider(MemoryLeft& left, std::uint64_t bytes, std::uint64_t whole, std::string of) {
  bytes = less(bytes, std::min(kMargin, whole / 16));
  if (bytes >= left.bytes) return;
  left = {bytes, std::to_string(whole) + " bytes of " + std::move(of)};
}

void consider_cgroups(MemoryLeft& left, const Version& version, const std::string& root) {
  const auto mount = mount_of(version, root);
  const auto cgroup = cgroup_of(version, root);
  if (!mount || !cgroup) return;
  // In a container the mount may show only a subtree of the cgroups. The top of the mount can then
  // be this process's cgroup.
  std::string path = *cgroup;
  if (mount->root != "/") {
    path = path.starts_with(mount->root) ? path.substr(mount->root.size()) : std::string();
  }
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    const std::string folder = root + mount->at + path;
    const auto limit = number_in(folder + version.limit);
    const auto usage = number_in(folder + version.usage);
    if (limit && usage && *limit < kNoLimit) {
      const auto cache = field_in(folder + "/memory.stat", version.cache);
      consider(left, less(*limit, less(*usage, cache.value_or(0))), *limit,
               "the memory limit of cgroup " + mount->at + path);
    }
    if (path.empty()) return;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left;
  for (const Version& version : kVersions) consider_cgroups(left, version, root);
  constexpr std::uint64_t kKiB = 1024;
  const std::string machine = root + "/proc/meminfo";
  const auto available = field_in(machine, "MemAvailable:");
  const auto total = field_in(machine, "MemTotal:");
  if (available && total) consider(left, *available * kKiB, *total * kKiB, "this machine's memory");
  return left;
}

Status no_room(std::uint64_t bytes, const char* what, const MemoryLeft& left) {
  return Status(Code::kOom, std::string(what) + ": " + std::to_string(bytes) +
                                " bytes more do not fit: " + std::to_string(left.bytes) +
                                " are left of the " + left.of);
}

Status room_for(std::uint64_t bytes, const char* what) {
  const MemoryLeft left = memory_left();
  return bytes <= left.bytes ? Status() : no_room(bytes, what, left);
}

}  // namespace hccl
