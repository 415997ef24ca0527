#include "hccl/join/launcher.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "hccl/base/text.h"
#include "hccl/join/hostlist.h"
#include "hccl/join/json_text.h"

namespace hccl::join {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;  // only a guard for int arithmetic
constexpr std::int64_t kMost32Bits = 0xffffffff;

Status invalid(std::string_view name, std::string_view value, const std::string& expected) {
  return Status(Code::kPara, "EI0001: Value \"" + shown(value) + "\" for environment variable " +
                                 std::string(name) + " is invalid. Expected value: " + expected +
                                 ".");
}

class Environment {
 public:
  explicit Environment(const Config::GetEnv& variables) : variables_(variables) {}

  /// Nothing for a variable that is not set, is empty, or has HCCL's value for "not set".
  std::optional<std::string> get(const char* name) const {
    const char* value = variables_(name);
    if (value == nullptr || *value == '\0' || std::string_view(value) == "EmptyString") {
      return std::nullopt;
    }
    return std::string(value);
  }
  bool has(const char* name) const { return get(name).has_value(); }

  Result<std::string> need(const char* name, const char* because) const {
    auto value = get(name);
    if (!value.has_value()) {
      return invalid(name, "", "a value, as " + std::string(because) + " is set");
    }
    return *value;
  }
  Result<std::int64_t> number(const char* name, const char* because, std::int64_t low,
                              std::int64_t high) const {
    HCCL_ASSIGN_OR_RETURN(const std::string text, need(name, because));
    const auto value = decimal(text);
    if (!value || static_cast<std::int64_t>(*value) < low ||
        static_cast<std::int64_t>(*value) > high) {
      return invalid(name, text,
                     "an integer " + std::to_string(low) + " to " + std::to_string(high));
    }
    return static_cast<std::int64_t>(*value);
  }
  Result<std::int64_t> number_or(const char* name, std::int64_t otherwise, std::int64_t low,
                                 std::int64_t high) const {
    if (!has(name)) return otherwise;
    return number(name, name, low, high);
  }

 private:
  const Config::GetEnv& variables_;
};

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
  Launch launch{Launch::Kind::kRankTable, -1, 0, -1, 0};
  if (env.has("CM_CHIEF_IP")) {
    return invalid("CM_CHIEF_IP", *env.get("CM_CHIEF_IP"), "none, as RANK_TABLE_FILE is set");
  }
  HCCL_ASSIGN_OR_RETURN(launch.rank_table_path, env.need("RANK_TABLE_FILE", "RANK_ID"));
  HCCL_ASSIGN_OR_RETURN(launch.identify, env.need("RANK_ID", "RANK_TABLE_FILE"));
  return launch;
}

Result<Launch> from_pmix(const Environment& env) {
  Launch launch{Launch::Kind::kPmix, 0, 0, -1, 0};
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

Result<Launch> from_torchrun(const Environment& env) {
  Launch launch{Launch::Kind::kTorchrun, 0, 0, -1, 0};
  HCCL_RETURN_IF_ERROR(
      read_ranks(env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, launch));
  HCCL_ASSIGN_OR_RETURN(launch.root_address, env.need("MASTER_ADDR", "RANK"));
  // The store of torchrun's agent listens at MASTER_PORT, so the root listens at the next port.
  HCCL_ASSIGN_OR_RETURN(const auto port, env.number("MASTER_PORT", "RANK", 1, 65534));
  launch.root_port = static_cast<std::uint16_t>(port + 1);
  launch.job = "torchrun " + env.get("TORCHELASTIC_RUN_ID").value_or("") + " " +
               launch.root_address + " " + std::to_string(port);
  return launch;
}

// Steps and jobs that share a root host get ranges of kPortsEach ports, so that a root may try
// several ports. A user seldom has more jobs at once than there are ranges.
std::uint16_t slurm_port(std::uint16_t base, std::int64_t job, std::int64_t step) {
  constexpr std::int64_t kPortsEach = 32;
  const std::int64_t places = std::max<std::int64_t>(1, (65536 - base) / kPortsEach);
  return static_cast<std::uint16_t>(base + (job * 16 + step) % places * kPortsEach);
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
      return invalid(name, *text, "tasks of each node as 2(x3),1, with one for SLURM_NODEID");
    }
    const int here = counts.value()[static_cast<std::size_t>(node)];
    if (here < 1 || here > launch.size) {
      return invalid(name, *text, "1 to " + std::to_string(launch.size) + " tasks on this node");
    }
    launch.local_size = here;
  }
  const int most = launch.local_size > 0 ? launch.local_size : launch.size;
  HCCL_ASSIGN_OR_RETURN(const auto local, env.number_or("SLURM_LOCALID", -1, 0, most - 1));
  launch.local_rank = static_cast<int>(local);
  return {};
}

Result<Launch> from_slurm(const Environment& env, std::uint16_t base_port) {
  Launch launch{Launch::Kind::kSlurm, 0, 0, -1, 0};
  const char* size = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  HCCL_RETURN_IF_ERROR(read_ranks(env, {"SLURM_PROCID", size, "", ""}, launch));
  HCCL_RETURN_IF_ERROR(read_slurm_local(env, launch));
  HCCL_ASSIGN_OR_RETURN(const auto job, env.number("SLURM_JOB_ID", "SLURM_PROCID", 0, kMost32Bits));
  HCCL_ASSIGN_OR_RETURN(const auto step,
                        env.number("SLURM_STEP_ID", "SLURM_PROCID", 0, kMost32Bits));
  const char* list = env.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  HCCL_ASSIGN_OR_RETURN(const std::string nodes, env.need(list, "SLURM_PROCID"));
  const auto hosts = expand_hostlist(nodes);
  if (!hosts.ok()) return invalid(list, nodes, "a list of hosts as node[03-05,9],x1");
  launch.root_address = hosts.value().front();
  launch.root_port = slurm_port(base_port, job, step);
  launch.job = "slurm " + std::to_string(job) + "." + std::to_string(step);
  return launch;
}

}  // namespace

Result<Launch> detect_launcher(std::uint16_t base_port, const Config::GetEnv& variables) {
  const Environment env(variables);
  if (env.has("RANK_TABLE_FILE")) return from_rank_table(env);
  if (env.has("PMIX_RANK") || env.has("PMIX_NAMESPACE")) return from_pmix(env);
  // MASTER_ADDR, MASTER_PORT and WORLD_SIZE alone are often exported by job scripts.
  if (env.has("RANK")) return from_torchrun(env);
  // A batch script has SLURM_PROCID, too, but no step: Slurm did not start it once for each task.
  if (env.has("SLURM_PROCID") && env.has("SLURM_STEP_ID")) return from_slurm(env, base_port);
  if (env.has("CM_CHIEF_IP")) {
    return Status(Code::kNotSupport,
                  "EI0001: environment variable CM_CHIEF_IP asks for a start by a chief, which "
                  "this library does not have. Use RANK_TABLE_FILE, mpirun, torchrun or srun.");
  }
  return Launch{};
}

}  // namespace hccl::join
