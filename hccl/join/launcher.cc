#include "hccl/join/launcher.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>

#include "hccl/base/auth.h"
#include "hccl/base/text.h"
#include "hccl/join/hostlist.h"
#include "hccl/join/variables.h"

namespace hccl::join {
namespace {

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

// Reads rank and size, and the local rank and size if they are given, and checks that they agree.
Status read_ranks(const Environment& env, const Names& names, Launch& launch) {
  HCCL_ASSIGN_OR_RETURN(const auto size, env.number(names.size, names.rank, 1, kMostRanks));
  HCCL_ASSIGN_OR_RETURN(const auto rank, env.number(names.rank, names.size, 0, size - 1));
  HCCL_ASSIGN_OR_RETURN(const auto local_size, env.number_or(names.local_size, 0, 1, size));
  HCCL_ASSIGN_OR_RETURN(
      const auto local_rank,
      env.number_or(names.local_rank, -1, 0, (local_size > 0 ? local_size : size) - 1));
  launch.rank = static_cast<int>(rank);
  launch.size = static_cast<int>(size);
  launch.local_rank = static_cast<int>(local_rank);
  launch.local_size = static_cast<int>(local_size);
  return {};
}

Result<Launch> from_rank_table(const Environment& env) {
  Launch launch{LauncherKind::kRankTable, -1, 0, -1, 0};
  if (env.has("CM_CHIEF_IP")) {
    return invalid("CM_CHIEF_IP", shown(*env.get("CM_CHIEF_IP")),
                   "none, as RANK_TABLE_FILE is set");
  }
  HCCL_ASSIGN_OR_RETURN(launch.rank_table_path, env.need("RANK_TABLE_FILE", "RANK_ID"));
  HCCL_ASSIGN_OR_RETURN(launch.identify, env.need("RANK_ID", "RANK_TABLE_FILE"));
  launch.device = env.device();
  return launch;
}

Result<Launch> from_pmix(const Environment& env) {
  Launch launch{LauncherKind::kPmix, 0, 0, -1, 0};
  HCCL_ASSIGN_OR_RETURN(const std::string job, env.need("PMIX_NAMESPACE", "PMIX_RANK"));
  HCCL_ASSIGN_OR_RETURN(const auto rank,
                        env.number("PMIX_RANK", "PMIX_NAMESPACE", 0, kMostRanks - 1));
  launch.job = "pmix " + job;
  launch.rank = static_cast<int>(rank);
  if (env.has("OMPI_COMM_WORLD_RANK") || env.has("OMPI_COMM_WORLD_SIZE")) {
    HCCL_RETURN_IF_ERROR(read_ranks(env,
                                    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                    launch));
    if (launch.rank != rank) {
      return invalid("OMPI_COMM_WORLD_RANK", std::to_string(launch.rank),
                     std::to_string(rank) + ", as PMIX_RANK");
    }
  }
  return launch;
}

// Names an agent of torchelastic. Ranks of several jobs may meet by root info, and each job has an
// agent 0: the digest of the run's id tells the agents of two jobs apart. MASTER_PORT cannot do
// that, because it may change in a restart. Never returns 0, which means "no agent".
std::uint32_t agent_of(const std::string& run, std::int64_t group_rank) {
  const Key key = digest(run);
  std::uint32_t of_job = 0;
  std::memcpy(&of_job, key.data(), sizeof of_job);
  const std::uint32_t agent = of_job ^ static_cast<std::uint32_t>(group_rank);
  return agent == 0 ? 1 : agent;
}

Result<Launch> from_torchrun(const Environment& env) {
  Launch launch{LauncherKind::kTorchrun, 0, 0, -1, 0};
  HCCL_RETURN_IF_ERROR(
      read_ranks(env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, launch));
  HCCL_ASSIGN_OR_RETURN(launch.root_address, env.need("MASTER_ADDR", "RANK"));
  // The store of torchrun's agent listens at MASTER_PORT, so the root listens at the next port.
  HCCL_ASSIGN_OR_RETURN(const auto port, env.number("MASTER_PORT", "RANK", 1, 65534));
  launch.root_port = static_cast<std::uint16_t>(port + 1);
  const std::string run = env.get("TORCHELASTIC_RUN_ID").value_or("");
  launch.job = "torchrun " + run + " " + launch.root_address + " " + std::to_string(port);
  // The agents of a job count their restarts separately: only the numbers of one agent's ranks are
  // compared.
  HCCL_ASSIGN_OR_RETURN(const auto number,
                        env.number_or("TORCHELASTIC_RESTART_COUNT", 0, 0, kMost32Bits));
  if (env.has("TORCHELASTIC_RESTART_COUNT") && env.has("GROUP_RANK")) {
    HCCL_ASSIGN_OR_RETURN(const auto agent, env.number("GROUP_RANK", "RANK", 0, kMostRanks));
    launch.attempt = {agent_of(run, agent), static_cast<std::uint32_t>(number)};
  }
  if (launch.local_size == launch.size) launch.job += " " + std::to_string(number);
  return launch;
}

// Jobs and steps that share a root host get a range of kPortsEach ports each, so that a root can
// try several ports. A user seldom has more jobs at once than there are ranges.
std::uint16_t slurm_port(std::uint16_t base, std::int64_t job, std::int64_t step) {
  constexpr std::int64_t kPortsEach = 32;
  const std::int64_t places = std::max<std::int64_t>(1, (65536 - base) / kPortsEach);
  return static_cast<std::uint16_t>(base + (job * 16 + step) % places * kPortsEach);
}

// A requeued job keeps its number, and ranks of its earlier attempt may still live on other nodes.
std::string restart(const Environment& env) {
  const auto count = env.get("SLURM_RESTART_COUNT");
  return count ? " restart " + *count : "";
}

// Reads the counts of this node from SLURM_STEP_TASKS_PER_NODE, "2(x3),1".
Status read_slurm_local(const Environment& env, Launch& launch) {
  HCCL_ASSIGN_OR_RETURN(const auto node, env.number_or("SLURM_NODEID", -1, 0, kMostRanks));
  const char* name =
      env.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const auto text = env.get(name);
  if (text.has_value() && node >= 0) {
    const auto counts = expand_counts(*text);
    if (!counts.ok() || static_cast<std::size_t>(node) >= counts.value().size()) {
      return invalid(name, shown(*text),
                     "tasks of each node as 2(x3),1, with one for SLURM_NODEID");
    }
    const int here = counts.value()[static_cast<std::size_t>(node)];
    if (here < 1 || here > launch.size) {
      return invalid(name, shown(*text),
                     "1 to " + std::to_string(launch.size) + " tasks on this node");
    }
    launch.local_size = here;
  }
  const int most = launch.local_size > 0 ? launch.local_size : launch.size;
  HCCL_ASSIGN_OR_RETURN(const auto local, env.number_or("SLURM_LOCALID", -1, 0, most - 1));
  launch.local_rank = static_cast<int>(local);
  return {};
}

Result<Launch> from_slurm(const Environment& env, std::uint16_t base_port) {
  Launch launch{LauncherKind::kSlurm, 0, 0, -1, 0};
  const char* size = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  HCCL_RETURN_IF_ERROR(read_ranks(env, {"SLURM_PROCID", size, "", ""}, launch));
  HCCL_RETURN_IF_ERROR(read_slurm_local(env, launch));
  HCCL_ASSIGN_OR_RETURN(const auto job, env.number("SLURM_JOB_ID", "SLURM_PROCID", 0, kMost32Bits));
  HCCL_ASSIGN_OR_RETURN(const auto step,
                        env.number("SLURM_STEP_ID", "SLURM_PROCID", 0, kMost32Bits));
  const char* list = env.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  HCCL_ASSIGN_OR_RETURN(const std::string nodes, env.need(list, "SLURM_PROCID"));
  const auto hosts = expand_hostlist(nodes);
  if (!hosts.ok()) return invalid(list, shown(nodes), "a list of hosts as node[03-05,9],x1");
  launch.root_address = hosts.value().front();
  launch.root_port = slurm_port(base_port, job, step);
  launch.job = "slurm " + std::to_string(job) + "." + std::to_string(step) + restart(env);
  return launch;
}

Result<Launch> from_hydra(const Environment& env, std::uint16_t base_port) {
  Launch launch{LauncherKind::kHydra, 0, 0, -1, 0};
  HCCL_RETURN_IF_ERROR(
      read_ranks(env, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, launch));
  launch.root_address = "127.0.0.1";
  launch.root_port = base_port;
  return launch;
}

// Hydra's ranks of one host have one parent, whose pid and start time name their job. PMI_FD could
// carry root info between hosts, but it belongs to MPI_Init.
Status name_hydra_job(const Process* proxy, Launch& launch) {
  if (launch.local_size == launch.size && proxy != nullptr) {
    launch.job = "hydra " + std::to_string(proxy->pid) + "." + std::to_string(proxy->started);
    return {};
  }
  const std::string why = launch.local_size == launch.size
                              ? "its process is not visible here (another PID namespace)"
                              : "MPI_LOCALNRANKS does not say that all of them are on this host";
  return Status(
      Code::kNotSupport,
      "EI0001: PMI_RANK and PMI_SIZE: mpiexec has started this process as rank " +
          std::to_string(launch.rank) + " of " + std::to_string(launch.size) + ", and " + why +
          ". Use Open MPI's mpirun, srun or a rank table, or give the ranks torchrun's variables: "
          "mpiexec -genv MASTER_ADDR <host of rank 0> -genv MASTER_PORT <port> ... sh -c "
          "'RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE exec program'");
}

struct Launcher {
  const char* present;  // this variable or `too` shows the launcher
  const char* too;      // Slurm needs both: a batch script has SLURM_PROCID, too, but no step
  LauncherKind kind;
  // The variables that the launcher sets, the rank first. The nearest ancestor in which one of
  // these variables has another value has set all of them.
  std::array<const char*, 6> given;
};

constexpr std::array kLaunchers = {
    Launcher{"RANK_TABLE_FILE", nullptr, LauncherKind::kRankTable, {"RANK_ID", "RANK_TABLE_FILE"}},
    Launcher{"PMIX_RANK", "PMIX_NAMESPACE", LauncherKind::kPmix, {"PMIX_RANK", "PMIX_NAMESPACE"}},
    // MASTER_ADDR, MASTER_PORT and WORLD_SIZE alone are often exported by job scripts.
    Launcher{
        "RANK",
        nullptr,
        LauncherKind::kTorchrun,
        {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    Launcher{"SLURM_PROCID",
             "SLURM_STEP_ID",
             LauncherKind::kSlurm,
             {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID"}},
    // PMI_FD, a number, differs between the ranks of a host, and between nested starts.
    Launcher{"PMI_RANK", nullptr, LauncherKind::kHydra, {"PMI_RANK", "PMI_SIZE", "PMI_FD"}}};

bool is_present(const Environment& env, const Launcher& launcher) {
  const bool too = launcher.too != nullptr && env.has(launcher.too);
  if (launcher.kind == LauncherKind::kSlurm) return env.has(launcher.present) && too;
  return env.has(launcher.present) || too;
}

// The index in `line` of the process that gave the variables; the size of `line` if none of its
// processes gave them.
std::size_t giver(const Environment& env, const Launcher& launcher,
                  const std::vector<Process>& line) {
  const auto at = std::ranges::find_if(line, [&](const Process& each) {
    if (each.own && each.variables.empty()) return false;  // the process title overwrote them
    const Config::GetEnv theirs = [&](const char* name) { return each.variable(name); };
    return !std::ranges::all_of(launcher.given, [&](const char* name) {
      return name == nullptr || env.get(name) == Environment(theirs).get(name);
    });
  });
  return static_cast<std::size_t>(at - line.begin());
}

Result<Launch> read(const Launcher& launcher, const Environment& env, std::uint16_t base_port) {
  switch (launcher.kind) {
    case LauncherKind::kRankTable:
      return from_rank_table(env);
    case LauncherKind::kPmix:
      return from_pmix(env);
    case LauncherKind::kTorchrun:
      return from_torchrun(env);
    case LauncherKind::kSlurm:
      return from_slurm(env, base_port);
    default:
      return from_hydra(env, base_port);
  }
}

// Checks that two launchers agree. A rank table may name ranks by words that are not numbers, and
// PMIx may not give the size.
Status compare(const Launcher& first, const Launch& a, const Launcher& second, const Launch& b) {
  const auto rank_of = [](const Launch& launch) -> std::int64_t {
    return launch.rank >= 0 ? launch.rank : decimal(launch.identify).value_or(kMostRanks);
  };
  const bool same_rank =
      rank_of(a) == rank_of(b) || rank_of(a) == kMostRanks || rank_of(b) == kMostRanks;
  if (same_rank && (a.size == b.size || a.size == 0 || b.size == 0)) return {};
  const auto says = [&](const Launcher& launcher, const Launch& launch) {
    return std::string(launcher.given[0]) + " says rank " + std::to_string(rank_of(launch)) +
           (launch.size == 0 ? "" : " of " + std::to_string(launch.size));
  };
  return Status(Code::kPara,
                "EI0001: two launchers describe this process, and neither of them "
                "started the other: " +
                    says(first, a) + ", " + says(second, b) +
                    ". Start it without the variables of one (env -u)");
}

// Variables in which launchers of other kinds give a process its number, and the number of
// processes.
constexpr std::array<std::array<const char*, 2>, 9> kForeign = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"HOROVOD_RANK", "HOROVOD_SIZE"},
    {"MP_CHILD", "MP_PROCS"},
    {"PALS_RANKID", "PALS_SIZE"},
    {"LOCAL_RANK", "WORLD_SIZE"},
    {"RANK_ID", "RANK_SIZE"},
}};

// Makes a world of one rank. Fails if the process is one of several.
Result<Launch> alone(const Environment& env) {
  if (env.has("CM_CHIEF_IP")) {
    return Status(Code::kNotSupport,
                  "EI0001: environment variable CM_CHIEF_IP asks for a start by a chief, which "
                  "this library does not have. Use RANK_TABLE_FILE, mpirun, torchrun or srun.");
  }
  for (const auto& [rank, size] : kForeign) {
    if (!env.has(rank) || env.get(size) == "1") continue;
    return Status(
        Code::kNotSupport,
        "EI0001: environment variable " + std::string(rank) + "=" + shown(*env.get(rank)) +
            " says that this process is one of several ranks, " +
            "and nothing says how they meet. Use RANK_TABLE_FILE with RANK_ID, Open MPI's "
            "mpirun, torchrun or srun, or give each rank RANK, WORLD_SIZE, MASTER_ADDR "
            "and MASTER_PORT. For a world of one rank set " +
            size + "=1, or unset " + rank + ".");
  }
  return Launch{};
}

}  // namespace

Result<Launch> detect_launcher(std::uint16_t base_port, const Config::GetEnv& variables,
                               const std::vector<Process>& line) {
  const Environment env(variables);
  std::size_t innermost = line.size();
  for (const Launcher& each : kLaunchers) {
    if (is_present(env, each)) innermost = std::min(innermost, giver(env, each, line));
  }
  const Launcher* chosen = nullptr;
  Result<Launch> launch = Launch{};
  for (const Launcher& each : kLaunchers) {
    if (!is_present(env, each) || giver(env, each, line) != innermost) continue;
    HCCL_ASSIGN_OR_RETURN(Launch read_here, read(each, env, base_port));
    if (chosen == nullptr) {
      chosen = &each;
      launch = std::move(read_here);
    } else if (innermost < line.size()) {  // else the launchers are hidden in another PID namespace
      HCCL_RETURN_IF_ERROR(compare(*chosen, *launch, each, read_here));
    }
  }
  if (chosen == nullptr) return alone(env);
  launch->first = innermost > 0 && !line.empty() ? line[innermost - 1].pid : 0;
  if (launch->kind == LauncherKind::kHydra) {
    if (launch->size == 1) return Launch{};
    const Process* proxy = innermost > 0 && innermost < line.size() ? &line[innermost] : nullptr;
    HCCL_RETURN_IF_ERROR(name_hydra_job(proxy, *launch));
  }
  return launch;
}

const char* rank_variable(LauncherKind kind) {
  const auto at = std::ranges::find(kLaunchers, kind, &Launcher::kind);
  return at == kLaunchers.end() ? nullptr : at->given[0];
}

std::optional<int> device_of(const Config::GetEnv& variables) {
  return Environment(variables).device();
}

bool is_same_rank(const Launch& one, const Launch& other) {
  const auto place = [](const Launch& each) {
    return std::tie(each.kind, each.rank, each.size, each.root_address, each.root_port);
  };
  return one.kind == LauncherKind::kTorchrun && place(one) == place(other);
}

std::string job_id(bool one_host, const Config::GetEnv& variables) {
  const Environment env(variables);
  if (const auto id = env.get("HCCL_JOB_ID")) return "id " + *id;
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    if (!one_host || !env.has(name)) continue;
    return std::string(name) + " " + *env.get(name) + restart(env);
  }
  return {};
}

}  // namespace hccl::join
