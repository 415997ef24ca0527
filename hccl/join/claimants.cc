#include "hccl/join/claimants.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "hccl/base/text.h"
#include "hccl/join/host.h"
#include "hccl/join/host_root.h"

namespace hccl::join {
namespace {

using control::Claim;

constexpr std::uint16_t kAnyPort = 60000;

std::string link_of(const std::string& process, const char* name) {
  std::array<char, 4096> target{};
  const std::string path = "/proc/" + process + "/" + name;
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  return {target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

// The first word of the command that is no option: the script, if the program is an interpreter.
// Monitors, notebooks and Python's own helpers may have a rank's variables, but run another script.
std::string script_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/cmdline", std::ios::binary);
  std::string word;
  for (bool program = true; std::getline(file, word, '\0'); program = false) {
    if (!program && !word.starts_with('-')) return word;
  }
  return {};
}

// Live processes of this user and of this process's namespaces that run this process's program. A
// network namespace counts as a host.
std::vector<pid_t> similar_processes() {
  constexpr std::array kLinks = {"exe", "ns/pid", "ns/net"};
  std::array<std::string, kLinks.size()> own;
  std::ranges::transform(kLinks, own.begin(),
                         [](const char* link) { return link_of("self", link); });
  std::vector<pid_t> found;
  std::error_code wrong;
  for (std::filesystem::directory_iterator at("/proc", wrong), end; !wrong && at != end;
       at.increment(wrong)) {
    const std::string name = at->path().filename().string();
    struct stat info = {};
    if (!decimal(name) || ::stat(("/proc/" + name).c_str(), &info) != 0) continue;
    if (info.st_uid != ::geteuid()) continue;
    const auto same = [&](const char* link, const std::string& ours) {
      return link_of(name, link) == ours;
    };
    if (std::ranges::equal(kLinks, own, same)) found.push_back(static_cast<pid_t>(*decimal(name)));
  }
  return found;
}

Result<Launch> launch_of(const std::vector<Process>& line, const std::string& id) {
  if (line.empty()) return Status(Code::kUnavail, "the process has ended");
  const Config::GetEnv variables = [&](const char* name) { return line[0].variable(name); };
  if (job_id(true, variables) != id) return Status(Code::kUnavail, "of another job");
  return detect_launcher(kAnyPort, variables, line);
}

bool has(const std::vector<Process>& line, pid_t pid) {
  return std::ranges::any_of(line, [pid](const Process& each) { return each.pid == pid; });
}

// Returns whether a rank may have started `process` as a daemon: `process` is younger than the
// rank, its original parent has ended, and its session is the rank's or has lost its leader. The
// parent is then process 1, or a subreaper that is an ancestor of the rank, too. `line`: the rank
// and its ancestors.
bool is_daemon(const Process& process, const std::vector<Process>& line) {
  if (line.empty() || process.started < line[0].started) return false;
  if (process.session == process.pid) return false;  // like torchelastic's ranks in a container
  if (process.session == line[0].session) return process.parent == 1 && line[0].parent != 1;
  return (process.parent == 1 || has(line, process.parent)) && start_of(process.session) == 0;
}

// The processes in `similar` that claim a rank, run the same script as the process of that rank,
// and have the job_id() `id`. Leaves out processes that a rank has started or that have started a
// rank. `members`: the claims of all ranks, in order.
std::vector<Claim> find_claimants(const std::vector<Claim>& members, const RankOf& rank_of,
                                  const std::string& id, const HostIdentity& host,
                                  const std::vector<pid_t>& similar) {
  std::vector<Claim> found;
  for (const pid_t pid : similar) {
    const std::vector<Process> line = line_of(pid);
    const auto comes_from = [&](const Claim& member) {
      return member.machine == host && has(line, static_cast<pid_t>(member.pid));
    };
    if (std::ranges::any_of(members, comes_from)) continue;
    const auto launch = launch_of(line, id);
    const int rank = launch.ok() ? rank_of(*launch) : -1;
    if (rank < 0 || static_cast<std::size_t>(rank) >= members.size()) continue;
    const Claim& member = members[static_cast<std::size_t>(rank)];
    const std::string like = member.machine == host ? std::to_string(member.pid) : "self";
    if (script_of(std::to_string(pid)) != script_of(like)) continue;
    if (member.machine == host) {
      const std::vector<Process> theirs = line_of(static_cast<pid_t>(member.pid));
      const auto same = launch_of(theirs, id);
      if (has(theirs, pid) || (same.ok() && same->first == launch->first)) continue;
      if (is_daemon(line[0], theirs)) continue;
    }
    found.push_back({.rank = member.rank,
                     .pid = static_cast<std::uint32_t>(pid),
                     .machine = host,
                     .address = "this host",
                     .started = line[0].started,
                     .attempt = launch->attempt});
  }
  return found;
}

}  // namespace

control::Claimants claimants_of(const std::string& job, const RankOf& rank_of,
                                const Config& config) {
  return {.find =
              [rank_of, id = job_id(true)](const std::vector<Claim>& members,
                                           const HostIdentity& host) {
                return find_claimants(members, rank_of, id, host, similar_processes());
              },
          .remember = [job, places = config.meeting_places] { remember_contest(places, job); }};
}

Status expect_newest(int rank, const RankOf& rank_of, const std::string& id,
                     const HostIdentity& host) {
  const std::vector<Process> line = line_of(::getpid());
  const auto launch = launch_of(line, id);
  if (!launch.ok() || launch->kind == LauncherKind::kAlone) return {};
  const Claim self{.rank = static_cast<std::uint32_t>(rank),
                   .pid = static_cast<std::uint32_t>(::getpid()),
                   .machine = host,
                   .address = "this host",
                   .started = line[0].started,
                   .attempt = launch->attempt};
  std::vector<Claim> members(self.rank + 1);  // nothing is known of the other ranks
  members.back() = self;
  const RankOf same = [&](const Launch& other) { return rank_of(other) == rank ? rank : -1; };
  // There may be hundreds of similar processes, so examines only processes of this rank.
  std::vector<pid_t> similar = similar_processes();
  const char* const variable = rank_variable(launch->kind);
  std::erase_if(similar, [&, own = variable_of(::getpid(), variable)](pid_t pid) {
    return variable_of(pid, variable) != own;
  });
  for (const Claim& each : find_claimants(members, same, id, host, similar)) {
    if (is_earlier(self, each) || is_older(self, each)) return two_claims(self, each);
  }
  return {};
}

}  // namespace hccl::join
