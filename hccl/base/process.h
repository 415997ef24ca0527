// Processes of this host, as /proc shows them. Only this file and config.cc read environments.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;  ///< 0: this process cannot see the parent
  pid_t session = 0;
  std::uint64_t started = 0;  ///< clock ticks since the boot
  bool own = false;           ///< the process belongs to this user
  /// The variables with which the process was started. Empty if the process belongs to another
  /// user, or has overwritten the variables with its title.
  std::map<std::string, std::string, std::less<>> variables = {};

  const char* variable(const char* name) const {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  }
};

/// Returns nothing if the process has ended, or if this process cannot see it.
std::optional<Process> process_of(pid_t pid);

/// Returns one variable of a process. Reads nothing else about the process, because some callers
/// call this for every process of the host.
std::optional<std::string> variable_of(pid_t pid, std::string_view name);

/// Returns Process::started, or 0 if process_of() returns nothing.
inline std::uint64_t start_of(pid_t pid) {
  const auto process = process_of(pid);
  return process ? process->started : 0;
}

/// Returns the process, its parent, and the further ancestors.
std::vector<Process> line_of(pid_t pid);

/// Returns the id of this host's boot; without /proc, the host's name. Fails if no descriptor is
/// free for reading the id. (With the host's name as its id, this process would seem to be on
/// another host.)
Result<std::string> boot_id();

}  // namespace hccl
