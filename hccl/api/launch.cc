#include "hccl/api/launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "hccl/base/auth.h"
#include "hccl/base/plugin.h"
#include "hccl/join/interfaces.h"
#include "hccl/join/launcher.h"
#include "hccl/join/pmix/pmix_plugin.h"
#include "hccl/join/rank_table.h"
#include "hccl/join/secret.h"

namespace hccl::api {
namespace {

using join::Launch;
using join::RootInfo;

// Ports that a root may listen on when its peers have to try them in turn.
constexpr int kGuessedPorts = 16;

Result<RootInfo> fresh_root(const Config& config, bool one_host) {
  RootInfo info;
  HCCL_RETURN_IF_ERROR(random_bytes(info.id.data(), info.id.size()));
  HCCL_RETURN_IF_ERROR(random_bytes(info.secret.data(), info.secret.size()));
  if (one_host && config.if_ip.empty() && config.socket_ifname.empty()) {
    info.address = "127.0.0.1";
  } else {
    HCCL_ASSIGN_OR_RETURN(info.address, join::local_address(config));
  }
  if (!config.port_ranges.empty()) {
    info.port = config.port_ranges.front().first;
    info.ports = static_cast<std::uint16_t>(config.port_ranges.front().second - info.port + 1);
  }
  HCCL_RETURN_IF_ERROR(State::get().start_coordinator(info, config));
  return info;
}

// Root info that every rank derives by itself from the launcher's variables or the rank table.
Result<RootInfo> known_root(const Config& config, const std::string& address, std::uint16_t port,
                            const std::string& job) {
  RootInfo info;
  info.address = address;
  info.port = port;
  info.ports = static_cast<std::uint16_t>(std::min(kGuessedPorts, 65536 - port));
  const Key id = digest("hccl job " + job);
  std::memcpy(info.id.data(), id.data(), info.id.size());
  if (!config.job_secret_file.empty()) {
    HCCL_ASSIGN_OR_RETURN(const Key secret, join::read_secret_file(config.job_secret_file));
    info.secret = derive(secret, "job " + job);
    return info;
  }
  // Without a secret, anyone who knows the job's name can join: warned once, and allowed on private
  // addresses only.
  if (!config.allow_insecure && !join::is_private(address)) {
    return Status(Code::kPara, "joining at " + address +
                                   ", which is not a private address, needs a secret: set "
                                   "HCCL_JOB_SECRET_FILE (or HCCL_ALLOW_INSECURE=1)");
  }
  info.secret = derive(digest("uid " + std::to_string(::geteuid())), "job " + job);
  return info;
}

// The job's name for this join: a program may leave a job and join again, or join twice at once.
std::string numbered(const std::string& job, int rank) {
  const int number = State::get().next_join(job + " rank " + std::to_string(rank));
  return job + " join " + std::to_string(number);
}

Result<CommunicatorPtr> join_known(const RootInfo& info, int size, int rank, const Config& config,
                                   const std::string& name) {
  if (rank == 0) {
    // The root may resolve its own name to another address than its peers do.
    RootInfo coordinator = info;
    const auto own = join::local_address(config);
    if (own.ok() && !join::is_private(info.address)) coordinator.address = own.value();
    HCCL_RETURN_IF_ERROR(State::get().start_coordinator(coordinator, config));
    return State::get().join(coordinator, size, rank, config, name);
  }
  return State::get().join(info, size, rank, config, name);
}

// ---- PMIx ----

class Pmix {
 public:
  static Result<Pmix> load(const Config& config) {
    std::string tried;
    for (const std::string& file : plugin_files("pmix", config.plugin_path)) {
      if (void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        Pmix pmix;
        pmix.world_ =
            reinterpret_cast<hccl_pmix_world_function>(::dlsym(library, "hccl_pmix_world"));
        pmix.share_ =
            reinterpret_cast<hccl_pmix_share_function>(::dlsym(library, "hccl_pmix_share"));
        if (pmix.world_ != nullptr && pmix.share_ != nullptr) return pmix;
        return Status(Code::kNotSupport, file + " is not this library's PMIx module");
      }
      const char* why = ::dlerror();
      tried += std::string(tried.empty() ? "" : "; ") + (why == nullptr ? file : why);
    }
    return Status(Code::kNotSupport,
                  "started by mpirun, but the PMIx module cannot be loaded: " + tried);
  }

  Status world(int* rank, int* size) const {
    char error[256] = "";
    if (world_(rank, size, error, sizeof error) == 0) return {};
    return Status(Code::kNetwork, std::string("PMIx: ") + error);
  }

  /// Carries the info from rank 0 to the other ranks.
  Status share(HcclRootInfo* info, int rank, int instance, const Config& config) const {
    char error[256] = "";
    const auto seconds = static_cast<unsigned>(config.connect_timeout.count());
    const int failed =
        share_(info->internal, sizeof info->internal, 0, static_cast<std::uint64_t>(instance),
               seconds, rank == 0 ? nullptr : info->internal, error, sizeof error);
    if (failed == 0) return {};
    return Status(Code::kTimeout, std::string("PMIx: ") + error);
  }

 private:
  hccl_pmix_world_function world_ = nullptr;
  hccl_pmix_share_function share_ = nullptr;
};

Result<CommunicatorPtr> join_by_pmix(const Launch& launch, const Config& config,
                                     const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(const Pmix pmix, Pmix::load(config));
  int rank = launch.rank;
  int size = launch.size;
  HCCL_RETURN_IF_ERROR(pmix.world(&rank, &size));
  HcclRootInfo carried{};
  RootInfo info;
  if (rank == 0) {
    HCCL_ASSIGN_OR_RETURN(info, fresh_root(config, launch.local_size == size));
    info.encode(std::span<char, RootInfo::kBytes>(carried.internal));
  }
  HCCL_RETURN_IF_ERROR(pmix.share(&carried, rank, State::get().next_join("pmix"), config));
  HCCL_ASSIGN_OR_RETURN(
      info, RootInfo::decode(std::span<const char, RootInfo::kBytes>(carried.internal)));
  return State::get().join(info, size, rank, config, name);
}

Result<CommunicatorPtr> join_by_table(const join::RankTable& table, const std::string& identify,
                                      const std::string& name,
                                      const std::optional<Config>& own = std::nullopt) {
  HCCL_ASSIGN_OR_RETURN(auto config, State::get().config());
  if (own) config = *own;
  HCCL_ASSIGN_OR_RETURN(const int rank, join::own_rank(table, identify));
  const join::RankEntry& root = table.ranks.front();
  bool one_host = true;
  for (const auto& each : table.ranks) one_host = one_host && each.server_id == root.server_id;
  if (!one_host && root.address.empty()) {
    return Status(Code::kPara,
                  "EI0014: rank 0 of the rank table has neither host_ip nor device_ip");
  }
  const std::string address = one_host ? "127.0.0.1" : root.address;
  const std::uint16_t port = root.port != 0 && !one_host ? root.port : config.base_port;
  HCCL_ASSIGN_OR_RETURN(
      const RootInfo info,
      known_root(config, address, port, numbered("table " + table.digest_text, rank)));
  return join_known(info, static_cast<int>(table.ranks.size()), rank, config, name);
}

}  // namespace

Result<RootInfo> make_root(bool one_host) {
  HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
  return fresh_root(config, one_host);
}

Result<CommunicatorPtr> join_by_file(const std::string& path, const std::string& identify,
                                     const std::string& name, const std::optional<Config>& config) {
  HCCL_ASSIGN_OR_RETURN(const auto table,
                        join::read_rank_table(path, Deadline::after(join::kRankTableWait)));
  return join_by_table(table, identify, name, config);
}

Result<CommunicatorPtr> join_by_text(const std::string& text, const std::string& identify,
                                     const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(const auto table, join::parse_rank_table(text));
  return join_by_table(table, identify, name);
}

Result<CommunicatorPtr> join_by_launcher(const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
  HCCL_ASSIGN_OR_RETURN(
      const Launch launch,
      join::detect_launcher([](const char* variable) { return std::getenv(variable); },
                            config.base_port));
  switch (launch.kind) {
    case Launch::Kind::kRankTable:
      return join_by_file(launch.rank_table_path, launch.identify, name);
    case Launch::Kind::kPmix:
      return join_by_pmix(launch, config, name);
    case Launch::Kind::kTorchrun:
    case Launch::Kind::kSlurm: {
      const bool one_host = launch.local_size == launch.size && config.if_ip.empty();
      std::string address = "127.0.0.1";
      if (!one_host) {
        HCCL_ASSIGN_OR_RETURN(address, join::resolve(launch.root_address, config.socket_family));
      }
      const std::string job = numbered(launch.job, launch.rank);
      HCCL_ASSIGN_OR_RETURN(const RootInfo info,
                            known_root(config, address, launch.root_port, job));
      return join_known(info, launch.size, launch.rank, config, name);
    }
    case Launch::Kind::kAlone:
      break;
  }
  HCCL_ASSIGN_OR_RETURN(const RootInfo info, fresh_root(config, true));
  return State::get().join(info, 1, 0, config, name);
}

}  // namespace hccl::api
