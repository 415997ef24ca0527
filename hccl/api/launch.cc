#include "hccl/api/launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "hccl/base/auth.h"
#include "hccl/base/plugin.h"
#include "hccl/base/thread.h"
#include "hccl/join/host_root.h"
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

// A world with a secret of its own, whose coordinator is in this process.
Result<RootInfo> fresh_root(const Config& config, const std::string& address) {
  RootInfo info;
  HCCL_RETURN_IF_ERROR(random_bytes(info.id.data(), info.id.size()));
  HCCL_RETURN_IF_ERROR(random_bytes(info.secret.data(), info.secret.size()));
  info.address = address;
  if (!config.port_ranges.empty()) {
    info.port = config.port_ranges.front().first;
    info.ports = static_cast<std::uint16_t>(config.port_ranges.front().second - info.port + 1);
  }
  HCCL_RETURN_IF_ERROR(State::get().start_coordinator(info, config));
  return info;
}

Result<RootInfo> fresh_root(const Config& config, bool one_host) {
  std::string address = "127.0.0.1";
  if (!one_host || !config.if_ip.empty() || !config.socket_ifname.empty()) {
    HCCL_ASSIGN_OR_RETURN(address, join::local_address(config));
  }
  return fresh_root(config, address);
}

// A job that every rank knows from the launcher's variables or the rank table, without a word from
// another rank.
struct KnownJob {
  std::string name;
  std::string address;  // of rank 0
  std::uint16_t port = 0;
  bool one_host = false;
  int size = 1;
  int rank = 0;
};

Result<Key> secret_of(const KnownJob& job, const Config& config) {
  if (!config.job_secret_file.empty()) {
    HCCL_ASSIGN_OR_RETURN(const Key secret, join::read_secret_file(config.job_secret_file));
    return derive(secret, "job " + job.name);
  }
  if (!config.allow_insecure) {
    return Status(Code::kPara,
                  "the ranks of this job are on several hosts and have no secret in common, so "
                  "anybody could join: `(umask 077; openssl rand -hex 32 > $HOME/hccl-secret)` "
                  "makes one; give each host a copy of it and each rank HCCL_JOB_SECRET_FILE="
                  "$HOME/hccl-secret (or HCCL_ALLOW_INSECURE=1, to do without)");
  }
  State::get().log()->warn(
      "HCCL_ALLOW_INSECURE=1: this job has no secret; anybody who reaches {} can join, and read "
      "and "
      "change its data",
      job.address);
  return derive(digest("uid " + std::to_string(::geteuid())), "job " + job.name);
}

// Between hosts: every rank derives the root info by itself.
Result<CommunicatorPtr> join_between_hosts(const KnownJob& job, const Config& config,
                                           const std::string& name) {
  RootInfo info;
  HCCL_ASSIGN_OR_RETURN(info.secret, secret_of(job, config));
  info.address = job.address;
  info.port = job.port;
  info.ports = static_cast<std::uint16_t>(std::min(kGuessedPorts, 65536 - job.port));
  const Key id = digest("hccl job " + job.name);
  std::memcpy(info.id.data(), id.data(), info.id.size());
  if (job.rank == 0) {
    // The root may resolve its own name to another address than its peers do.
    const auto own = join::local_address(config);
    if (own.ok() && !join::is_private(info.address)) info.address = own.value();
    HCCL_RETURN_IF_ERROR(State::get().start_coordinator(info, config));
  }
  return State::get().join(info, job.size, job.rank, config, name);
}

// Inside a host: rank 0 makes up the root info, and the others read it from a file of this user's.
Result<CommunicatorPtr> join_inside_host(const KnownJob& job, const Config& config,
                                         const std::string& name) {
  const Deadline deadline = Deadline::after(config.connect_timeout);
  if (job.rank != 0) {
    HCCL_ASSIGN_OR_RETURN(const RootInfo info,
                          join::find_host_root(config.runtime_dir, job.name, deadline));
    return State::get().join(info, job.size, job.rank, config, name);
  }
  HCCL_ASSIGN_OR_RETURN(const auto file,
                        join::HostRoot::create(config.runtime_dir, job.name, deadline));
  HCCL_ASSIGN_OR_RETURN(const RootInfo info, fresh_root(config, job.address));
  HCCL_RETURN_IF_ERROR(file.write(info));
  return State::get().join(info, job.size, job.rank, config, name);
}

Result<CommunicatorPtr> join_known(KnownJob job, const Config& config, const std::string& name) {
  // A program may leave a job and join again, or join twice at once.
  const int number = State::get().next_join(job.name + " rank " + std::to_string(job.rank));
  job.name += " join " + std::to_string(number);
  const bool inside = job.one_host && config.job_secret_file.empty();
  return inside ? join_inside_host(job, config, name) : join_between_hosts(job, config, name);
}

// ---- PMIx ----

class Pmix {
 public:
  static Result<Pmix> load(const Config& config) {
    const SignalsBlocked blocked;  // what is loaded may start threads
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
  bool one_server = true;
  bool all_local = true;
  for (const auto& each : table.ranks) {
    one_server = one_server && each.server_id == root.server_id;
    all_local = all_local && join::is_local(each.address);
  }
  if (!one_server && root.address.empty()) {
    return Status(Code::kPara,
                  "EI0014: rank 0 of the rank table has neither host_ip nor device_ip");
  }
  KnownJob job{
      "table " + table.digest_text,         "127.0.0.1", config.base_port, one_server || all_local,
      static_cast<int>(table.ranks.size()), rank};
  if (!one_server) {
    job.address = root.address;
    if (root.port != 0) job.port = root.port;
  }
  return join_known(std::move(job), config, name);
}

Result<CommunicatorPtr> join_by_variables(const Launch& launch, const Config& config,
                                          const std::string& name) {
  const bool one_host = launch.local_size == launch.size;
  std::string address = "127.0.0.1";
  if (!one_host || !config.if_ip.empty()) {
    HCCL_ASSIGN_OR_RETURN(address, join::resolve(launch.root_address, config.socket_family));
  }
  // Where the launcher does not say how many ranks are here, ranks at rank 0's address are on its
  // host, and no others can join.
  const bool here = launch.local_size == 0 && join::is_local(address);
  return join_known(
      {launch.job, address, launch.root_port, one_host || here, launch.size, launch.rank}, config,
      name);
}

}  // namespace

Result<RootInfo> make_root(bool one_host) {
  HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
  return fresh_root(config, one_host);
}

Result<CommunicatorPtr> join_by_file(const std::string& path, const std::string& identify,
                                     const std::string& name, const std::optional<Config>& config) {
  HCCL_ASSIGN_OR_RETURN(const auto own, State::get().config());
  // A table that is not complete yet is waited for as ranks are that have not come yet.
  const auto patience = config ? config->connect_timeout : own.connect_timeout;
  HCCL_ASSIGN_OR_RETURN(const auto table, join::read_rank_table(path, Deadline::after(patience)));
  return join_by_table(table, identify, name, config);
}

Result<CommunicatorPtr> join_by_text(const std::string& text, const std::string& identify,
                                     const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(const auto table, join::parse_rank_table(text));
  return join_by_table(table, identify, name);
}

Result<CommunicatorPtr> join_by_launcher(const std::string& name) {
  HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
  HCCL_ASSIGN_OR_RETURN(const Launch launch, join::detect_launcher(config.base_port));
  switch (launch.kind) {
    case Launch::Kind::kRankTable:
      return join_by_file(launch.rank_table_path, launch.identify, name);
    case Launch::Kind::kPmix:
      return join_by_pmix(launch, config, name);
    case Launch::Kind::kTorchrun:
    case Launch::Kind::kSlurm:
      return join_by_variables(launch, config, name);
    case Launch::Kind::kAlone:
      break;
  }
  HCCL_ASSIGN_OR_RETURN(const RootInfo info, fresh_root(config, true));
  return State::get().join(info, 1, 0, config, name);
}

}  // namespace hccl::api
