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
  pid_t parent = 0;           ///< 0: this process cannot see the parent
  std::uint64_t started = 0;  ///< clock ticks since the boot
  bool own = false;           ///< the process belongs to this user
  /// The variables with which the process was started. Empty if the process belongs to another
  /// user, or has written its title over them.
  std::map<std::string, std::string, std::less<>> variables = {};

  const char* variable(const char* name) const {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  }
};

/// Nothing if the process has ended, or if this process cannot see it.
std::optional<Process> process_of(pid_t pid);

/// One variable of a process. Reads only the process's variables, because a caller may ask for
/// every process.
std::optional<std::string> variable_of(pid_t pid, std::string_view name);

/// Process::started, or 0.
inline std::uint64_t start_of(pid_t pid) {
  const auto process = process_of(pid);
  return process ? process->started : 0;
}

/// The process, its parent, and so on.
std::vector<Process> line_of(pid_t pid);

/// Names the boot of this host. An error if the process has no descriptor to read the boot's id
/// with: without the id, the processes of this host would seem to be on different hosts.
Result<std::string> boot_id();

}  // namespace hccl
