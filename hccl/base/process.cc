#include "hccl/base/process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

#include "hccl/base/error_text.h"
#include "hccl/base/fd.h"
#include "hccl/base/text.h"

namespace hccl {
namespace {

constexpr std::size_t kLongestLine = 256;  // ends a loop that reused process ids can cause

std::string file_of(pid_t pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<Process> process_of(pid_t pid) {
  const std::string stat = file_of(pid, "stat");
  // The program's name, in parentheses, may contain blanks and parentheses.
  const auto end = stat.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(end + 1));
  Process process{.pid = pid};
  char state = '\0';
  std::string skipped;
  fields >> state >> process.parent >> skipped >> process.session;
  for (int field = 7; field < 22; ++field) fields >> skipped;
  if (!(fields >> process.started) || state == 'Z' || state == 'X') return std::nullopt;
  struct stat info = {};
  process.own =
      ::stat(("/proc/" + std::to_string(pid)).c_str(), &info) == 0 && info.st_uid == ::geteuid();
  const std::string variables = file_of(pid, "environ");
  for (const std::string_view each : split_at(variables, '\0')) {
    const auto equals = each.find('=');
    if (equals == std::string_view::npos) continue;
    process.variables.emplace(each.substr(0, equals), each.substr(equals + 1));
  }
  return process;
}

std::optional<std::string> variable_of(pid_t pid, std::string_view name) {
  const std::string variables = file_of(pid, "environ");
  for (const std::string_view each : split_at(variables, '\0')) {
    if (each.starts_with(name) && each.substr(name.size()).starts_with('=')) {
      return std::string(each.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

std::vector<Process> line_of(pid_t pid) {
  std::vector<Process> line;
  while (pid > 0 && line.size() < kLongestLine) {
    auto process = process_of(pid);
    if (!process) break;
    pid = process->parent;
    line.push_back(std::move(*process));
  }
  return line;
}

Result<std::string> boot_id() {
  static constexpr const char* kFile = "/proc/sys/kernel/random/boot_id";
  const Fd fd(::open(kFile, O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    return Status(Code::kSyscall, std::string(kFile) + ": " + error_text(errno));
  }
  char text[64];
  const ssize_t got = fd.valid() ? ::read(fd.get(), text, sizeof text) : -1;
  if (got > 0) {
    std::string id(text, static_cast<std::size_t>(got));
    return id.substr(0, id.find('\n'));
  }
  // Without /proc, the host's name takes the place of the id.
  char name[65] = "";
  ::gethostname(name, sizeof name - 1);
  return std::string("host ") + name;
}

}  // namespace hccl
