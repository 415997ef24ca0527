#include "hccl/join/host.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "hccl/control/roster.h"

namespace hccl::join {
namespace {

// The indices of equal masks, by mask. Empty if no order helps (see cores_in_turn()).
std::map<std::string, std::vector<int>> groups_by_core(std::span<const std::string> masks) {
  std::map<std::string, std::vector<int>> groups;
  for (std::size_t i = 0; i < masks.size(); ++i) groups[masks[i]].push_back(static_cast<int>(i));
  if (groups.size() == 1 || groups.size() == masks.size()) return {};
  int alone = 0;
  for (const auto& [mask, members] : groups) alone += count_cores(std::span(&mask, 1));
  if (alone != count_cores(masks)) return {};
  return groups;
}

constexpr std::string_view kNetwork = " net ";

}  // namespace

std::string own_namespace(const char* kind) {
  struct stat info = {};
  if (::stat((std::string("/proc/self/ns/") + kind).c_str(), &info) != 0) return "unknown";
  return std::to_string(info.st_ino);
}

HostIdentity host_identity(const std::string& boot) {
  return boot + std::string(kNetwork) + own_namespace("net");
}

std::string_view machine_of(const HostIdentity& host) {
  return std::string_view(host).substr(0, host.rfind(kNetwork));
}

std::string core_mask() {
  // The kernel's mask may be longer than cpu_set_t. Then the call fails with EINVAL until the mask
  // is large enough.
  for (std::size_t bytes = sizeof(cpu_set_t); bytes <= control::kCoresCap; bytes *= 2) {
    std::vector<cpu_set_t> sets((bytes + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t));
    if (::sched_getaffinity(0, bytes, sets.data()) != 0) continue;
    std::string mask(bytes, '\0');
    for (std::size_t core = 0; core < bytes * 8; ++core) {
      if (CPU_ISSET_S(core, bytes, sets.data())) {
        mask[core / 8] = static_cast<char>(mask[core / 8] | 1 << core % 8);
      }
    }
    mask.resize(mask.find_last_not_of('\0') + 1);
    return mask;
  }
  return {};
}

std::string cpu_model() {
  std::string model;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; model.empty() && std::getline(info, line);) {
    // x86-64 reports a name; Arm reports the number of the part.
    for (const char* field : {"model name", "CPU part"}) {
      if (!line.starts_with(field)) continue;
      const auto start = line.find_first_not_of(" \t", line.find(':') + 1);
      if (start != std::string::npos) model = line.substr(start, 96);
    }
  }
  struct utsname system = {};
  if (model.empty()) model = ::uname(&system) == 0 ? system.machine : "unknown";
  for (char& letter : model) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return model + " with " + std::to_string(std::thread::hardware_concurrency()) + " cores";
}

std::vector<int> cores_in_turn(std::span<const std::string> masks) {
  const auto groups = groups_by_core(masks);
  std::vector<int> order;
  for (std::size_t turn = 0; !groups.empty() && order.size() < masks.size(); ++turn) {
    for (const auto& [mask, members] : groups) {
      if (turn < members.size()) order.push_back(members[turn]);
    }
  }
  return order;
}

int count_cores(std::span<const std::string> masks) {
  std::string all;
  for (const std::string& mask : masks) {
    all.resize(std::max(all.size(), mask.size()), '\0');
    for (std::size_t i = 0; i < mask.size(); ++i) all[i] = static_cast<char>(all[i] | mask[i]);
  }
  int cores = 0;
  for (const char byte : all) cores += std::popcount(static_cast<unsigned char>(byte));
  return cores;
}

}  // namespace hccl::join
