#include "hccl/join/worlds.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hccl/base/auth.h"
#include "hccl/base/process.h"
#include "hccl/base/random.h"
#include "hccl/join/claim.h"
#include "hccl/join/claimants.h"
#include "hccl/join/host.h"
#include "hccl/join/host_root.h"
#include "hccl/join/interfaces.h"
#include "hccl/join/launcher.h"
#include "hccl/join/pmix_module.h"
#include "hccl/join/secret.h"

namespace hccl::join {

// A job that every rank knows from the launcher's variables or the rank table, without a message
// from another rank.
struct Worlds::Job {
  std::string name = {};
  std::string address = {};  // of rank 0
  std::uint16_t port = 0;
  bool one_host = false;
  bool guessed = false;  // one_host is a guess of this rank: no variable gives it
  int size = 1;
  int rank = 0;
  RankOf rank_of = {};  // the rank of a process of this job
  control::Attempt attempt = {};
  bool watched = true;  // the job's root looks for other claimants on its host
};

namespace {

// The longest time for which a second root seeks the first root.
constexpr std::chrono::seconds kContestTime{2};

// The number of ports at which a root may listen if its peers have to try them in turn.
constexpr int kGuessedPorts = 16;

}  // namespace

// Returns this host's boot id. It is read before the first socket is opened, because later there
// may be no free descriptor for reading it.
Result<std::string> Worlds::boot() {
  const MutexLock lock(mutex_);
  if (boot_.empty()) {
    HCCL_ASSIGN_OR_RETURN(boot_, boot_id());
  }
  return boot_;
}

std::shared_ptr<Control> Worlds::control() {
  if (!control_ || control_->ended()) control_ = std::make_shared<Control>();
  return control_;
}

Status Worlds::start_root(RootInfo& info, const Config& config, control::Claimants claimants) {
  Result<std::string> own = boot();
  const MutexLock lock(mutex_);  // no fork before roots_ has the sockets
  HCCL_ASSIGN_OR_RETURN(auto root,
                        Node::root(control(), info, config, make_logger(config.log_level, "root"),
                                   std::move(claimants), std::move(own)));
  std::erase_if(roots_, [](const auto& each) { return each->finished(); });
  nodes_[info.id] = root;
  roots_.push_back(std::move(root));
  return {};
}

// The node that the ranks of this process in one world share. From now on the ranks own the node.
std::shared_ptr<Node> Worlds::node_of(const RootInfo& info) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Node> node = nodes_[info.id].lock();
  if (!node || node->is_over()) nodes_[info.id] = node = std::make_shared<Node>(control(), info);
  std::erase(roots_, node);
  std::erase_if(nodes_, [](const auto& each) { return each.second.expired(); });
  return node;
}

std::shared_ptr<Fd> Worlds::open_unshared(const std::function<Fd()>& make) {
  const MutexLock lock(mutex_);  // no fork between the call and the entry
  std::erase_if(unshared_, [](const auto& each) { return each.expired(); });
  auto made = std::make_shared<Fd>(make());
  unshared_.push_back(made);
  return made;
}

// Claims the rank for this process. Fails if an ancestor of this process holds the claim: a program
// that a rank starts inherits the launcher's variables, and would wait for a world in which its
// rank is taken. Returns an invalid descriptor if this process itself holds the claim already.
Result<std::shared_ptr<Fd>> Worlds::claim_rank(const std::string& job, int size, int rank) {
  if (size == 1) return std::make_shared<Fd>();
  // Containers may share a network namespace, but have process numbers of their own.
  const std::string place =
      job + " rank " + std::to_string(rank) + " of " + own_namespace("pid") + " pid ";
  const pid_t self = ::getpid();
  for (const Process& each : line_of(self)) {
    if (each.pid == self || !is_claimed(place + std::to_string(each.pid))) continue;
    return Status(Code::kPara,
                  "EI0001: process " + std::to_string(each.pid) + " has joined as rank " +
                      std::to_string(rank) +
                      ", and has started this process, which inherited its "
                      "launcher's variables: only one of them can be this rank. Start this process "
                      "without these variables, or let the other process leave first "
                      "(HcclCommDestroy)");
  }
  return open_unshared([&] { return claim(place + std::to_string(self)); });
}

Worlds::Joined Worlds::enter(const RootInfo& info, const Job& job, const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const std::string own, boot());
  const std::shared_ptr<Node> node = node_of(info);
  const auto check = [&] {
    if (!job.rank_of || (job.watched && is_local(info.address))) return Status();
    return expect_newest(job.rank, job.rank_of, job_id(true), host_identity(own));
  };
  auto joined = World::join(node, job.size, job.rank, config,
                            make_logger(config.log_level, "rank " + std::to_string(job.rank)),
                            check, job.attempt, own);
  const Status& why = joined.status();
  if (why.code() == Code::kTimeout && job.rank == 0) {
    return Status(why.code(), why.message() + alternatives_to(info.address), why.culprit());
  }
  return joined;
}

Worlds::Joined Worlds::join(const RootInfo& info, int size, int rank, const Config& config) {
  Job job{.size = size, .rank = rank, .watched = false};
  const auto self = detect_launcher(config.base_port, environment, line_of(::getpid()));
  // A rank of an earlier attempt can find this root info, too, because torchelastic's agents keep
  // their store.
  if (self.ok() && self->attempt.agent != 0) {
    job.attempt = self->attempt;
    job.rank_of = [self, rank](const Launch& other) {
      return is_same_rank(*self, other) ? rank : -1;
    };
  }
  return enter(info, job, config);
}

// ---- around a fork ----

// Waits until no other thread changes the data that abandon() reads.
void Worlds::hold() {
  mutex_.lock();
  if (control_) control_->hold();
}

void Worlds::release() {
  if (control_) control_->release();
  mutex_.unlock();
}

void Worlds::abandon() {
  for (const auto& [id, each] : nodes_) {
    if (const auto node = each.lock()) node->abandon();
  }
  if (control_) control_->abandon();
  for (const auto& each : unshared_) {
    if (const auto fd = each.lock()) fd->reset();
  }
  release();
}

// ---- root info made by a process ----

// Makes root info with a fresh secret and id, and starts its root.
Result<RootInfo> Worlds::fresh_root(const Config& config, const std::string& address,
                                    const control::Claimants& claimants) {
  RootInfo info;
  HCCL_RETURN_IF_ERROR(random_bytes(info.id.data(), info.id.size()));
  HCCL_RETURN_IF_ERROR(random_bytes(info.secret.data(), info.secret.size()));
  info.address = address;
  auto ranges = config.port_ranges;
  if (ranges.empty()) ranges = {{0, 0}};  // any free port
  Status started;
  for (const auto& [first, last] : ranges) {
    info.port = first;
    info.ports = static_cast<std::uint16_t>(last - first + 1);
    started = start_root(info, config, claimants);
    if (started.code() != Code::kUnavail) break;  // else all ports of the range are taken
  }
  HCCL_RETURN_IF_ERROR(started);
  return info;
}

Result<RootInfo> Worlds::make_root(const Config& config, bool one_host) {
  std::string address = "127.0.0.1";
  if (!one_host || !config.if_ip.empty() || !config.socket_ifname.empty()) {
    HCCL_ASSIGN_OR_RETURN(address, local_address(config));
  }
  return fresh_root(config, address);
}

// ---- jobs that all ranks know ----

// This process is the second root of this job's name on this host. It reports itself to the first
// root, because the ranks cannot know which of the two roots is theirs. Always returns an error.
Status Worlds::contest(const RootInfo& info, const Job& job, Config config) {
  config.connect_timeout = std::min<std::chrono::seconds>(config.connect_timeout, kContestTime);
  const Status refused = enter(info, job, config).status();
  return refused.code() == Code::kPara ? refused : name_is_taken();
}

// Between hosts: every rank derives the root info itself.
Worlds::Joined Worlds::join_between_hosts(const Job& job, const Config& config) {
  RootInfo info;
  std::shared_ptr<Fd> opening;  // held until all ranks have joined
  HCCL_ASSIGN_OR_RETURN(info.secret, job_secret(job.name, job.address, config));
  info.address = job.address;
  info.port = job.port;
  info.ports = static_cast<std::uint16_t>(std::min(kGuessedPorts, 65536 - job.port));
  const Key id = derive(info.secret, "id");  // reveals nothing about the job
  std::memcpy(info.id.data(), id.data(), info.id.size());
  if (job.rank == 0) {
    // The root's name may resolve to an address that this host does not have, because the network
    // translates the address (a service, a NAT).
    const auto own = local_address(config);
    if (own.ok() && !is_local(info.address)) info.address = own.value();
    // The name of the claim contains the secret, so that other users cannot claim it.
    const std::string name = "root " + std::string(info.secret.begin(), info.secret.end());
    opening = open_unshared([&] { return claim(name); });
    if (!opening->valid() && is_claimed(name)) return contest(info, job, config);
    if (was_contested(config.meeting_places, job.name)) return name_is_taken();
    HCCL_RETURN_IF_ERROR(start_root(info, config, claimants_of(job.name, job.rank_of, config)));
  }
  return enter(info, job, config);
}

// Inside a host: rank 0 makes the root info, and the other ranks read it from a file of this user.
Worlds::Joined Worlds::join_inside_host(const Job& job, const Config& config) {
  const Deadline deadline = Deadline::after(config.connect_timeout);
  if (job.rank != 0) {
    HCCL_ASSIGN_OR_RETURN(const RootInfo info,
                          find_host_root(config.meeting_places, job.name, deadline));
    return enter(info, job, config);
  }
  const auto file = HostRoot::create(config.meeting_places, job.name, deadline,
                                     [this](const auto& make) { return open_unshared(make); });
  if (file.status().code() == Code::kUnavail) {
    const auto first =
        find_host_root(config.meeting_places, job.name, Deadline::after(kContestTime));
    return first.ok() ? contest(*first, job, config) : file.status();
  }
  if (!file.ok()) return file.status();
  if (was_contested(config.meeting_places, job.name)) return name_is_taken();
  HCCL_ASSIGN_OR_RETURN(
      const RootInfo info,
      fresh_root(config, job.address, claimants_of(job.name, job.rank_of, config)));
  HCCL_RETURN_IF_ERROR(file->write(info));
  return enter(info, job, config);
}

Worlds::Joined Worlds::join_known(Job job, const Config& config) {
  if (job.size == 1) {  // needs no name
    HCCL_ASSIGN_OR_RETURN(const RootInfo info, make_root(config, true));
    return join(info, 1, 0, config);
  }
  HCCL_ASSIGN_OR_RETURN(auto claim, claim_rank(job.name, job.size, job.rank));
  const bool insecure = job.guessed && config.allow_insecure;
  const bool inside = job.one_host && config.job_secret_file.empty() && !insecure;
  // The name must be the same on ranks of other hosts, which do not make this guess.
  const std::string id = job_id(inside || (job.one_host && !job.guessed));
  JoinNumbers::Number number(joins_, job.name + " rank " + std::to_string(job.rank));
  // Between hosts a failed join's root still answers for a while, so the next try has a new number.
  if (!inside) number.keep();
  job.name += " " + id + " join " + std::to_string(number.value());
  auto line = inside ? join_inside_host(job, config) : join_between_hosts(job, config);
  if (line.ok()) {
    (*line)->keep(std::move(claim));
    number.keep();
    return line;
  }
  const Status& why = line.status();
  if (!inside || !job.guessed || why.code() != Code::kTimeout) return line;
  return Status(why.code(),
                why.message() +
                    "; without LOCAL_WORLD_SIZE and HCCL_JOB_SECRET_FILE all ranks count as ranks "
                    "of this host: set them if some are on others",
                why.culprit());
}

// ---- rank tables and launchers ----

Worlds::Joined Worlds::join_by_table(const RankTable& table, const std::string& identify,
                                     const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const int rank, own_rank(table, identify, device_of()));
  const RankEntry& root = table.ranks.front();
  bool one_server = true;
  bool all_local = true;
  for (const auto& each : table.ranks) {
    one_server = one_server && each.server_id == root.server_id;
    all_local = all_local && is_local(each.address);
  }
  if (!one_server && root.address.empty()) {
    return Status(Code::kPara, "EI0014: rank 0 of the rank table has no address: add host_ip");
  }
  Job job{.name = "table " + table.digest_text,
          .address = "127.0.0.1",
          .port = config.base_port,
          .one_host = one_server || all_local,
          .size = static_cast<int>(table.ranks.size()),
          .rank = rank};
  job.rank_of = [table](const Launch& launch) {
    if (launch.kind != LauncherKind::kRankTable) return -1;
    const auto theirs = read_rank_table(launch.rank_table_path, Deadline::after({}));
    if (!theirs.ok() || theirs->digest_text != table.digest_text) return -1;
    const auto rank_there = own_rank(table, launch.identify, launch.device);
    return rank_there.ok() ? *rank_there : -1;
  };
  if (!one_server) {
    job.address = root.address;
    if (root.port != 0) job.port = root.port;
  }
  auto joined = join_known(std::move(job), config);
  if (joined.ok() || one_server || !root.of_device) return joined;
  const Status& why = joined.status();
  return Status(why.code(),
                why.message() +
                    "; the rank table has only a device_ip for rank 0, and the hosts "
                    "may lack the network of the devices: add host_ip",
                why.culprit());
}

Worlds::Joined Worlds::join_by_variables(const Launch& launch, const Config& config) {
  const bool one_host = launch.local_size == launch.size;
  std::string address = "127.0.0.1";
  if (!one_host || !config.if_ip.empty()) {
    HCCL_ASSIGN_OR_RETURN(address, resolve(launch.root_address, config));
  }
  // If the launcher does not report the number of ranks on this host, a rank on rank 0's host
  // assumes that all ranks are on that host. Ranks on other hosts cannot join then.
  const bool here = launch.local_size == 0 && is_local(address);
  const auto rank_of = [job = launch.job](const Launch& other) {
    return other.job == job ? other.rank : -1;
  };
  return join_known({launch.job, address, launch.root_port, one_host || here, here, launch.size,
                     launch.rank, rank_of, launch.attempt},
                    config);
}

Worlds::Joined Worlds::join_by_file(const std::string& path, const std::string& identify,
                                    const Config& config) {
  // The rank waits for an incomplete table as long as for ranks that have not come yet.
  HCCL_ASSIGN_OR_RETURN(const RankTable table,
                        read_rank_table(path, Deadline::after(config.connect_timeout)));
  return join_by_table(table, identify, config);
}

Worlds::Joined Worlds::join_by_text(const std::string& text, const std::string& identify,
                                    const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const RankTable table, parse_rank_table(text));
  return join_by_table(table, identify, config);
}

Worlds::Joined Worlds::join_by_pmix(const Launch& launch, const Config& config) {
  HCCL_ASSIGN_OR_RETURN(auto claim, claim_rank(launch.job, launch.size, launch.rank));
  HCCL_ASSIGN_OR_RETURN(const PmixModule pmix, PmixModule::load(config));
  int rank = launch.rank;
  int size = launch.size;
  HCCL_RETURN_IF_ERROR(pmix.world(&rank, &size));
  std::array<char, RootInfo::kBytes> carried{};
  JoinNumbers::Number number(joins_, "pmix");
  number.keep();  // even if the join fails, because PMIx keeps the info that was published
  if (rank == 0) {
    HCCL_ASSIGN_OR_RETURN(const RootInfo info, make_root(config, launch.local_size == size));
    info.encode(carried);
  }
  HCCL_RETURN_IF_ERROR(pmix.share(carried, number.value(), config));
  HCCL_ASSIGN_OR_RETURN(const RootInfo info, RootInfo::decode(carried));
  HCCL_ASSIGN_OR_RETURN(auto line, join(info, size, rank, config));
  line->keep(std::move(claim));
  return line;
}

Worlds::Joined Worlds::join_by_launcher(const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const Launch launch,
                        detect_launcher(config.base_port, environment, line_of(::getpid())));
  switch (launch.kind) {
    case LauncherKind::kRankTable:
      return join_by_file(launch.rank_table_path, launch.identify, config);
    case LauncherKind::kPmix:
      return join_by_pmix(launch, config);
    case LauncherKind::kTorchrun:
    case LauncherKind::kSlurm:
    case LauncherKind::kHydra:
      return join_by_variables(launch, config);
    case LauncherKind::kAlone:
      break;
  }
  HCCL_ASSIGN_OR_RETURN(const RootInfo info, make_root(config, true));
  return join(info, 1, 0, config);
}

}  // namespace hccl::join
