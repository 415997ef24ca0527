// How a communicator comes to be, and how it ends.
#include "hccl/core/communicator.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "hccl/base/auth.h"
#include "hccl/join/host.h"
#include "transport/registry.h"

namespace hccl::core {
namespace {

constexpr std::chrono::seconds kLeaveTime{1};
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
constexpr std::chrono::microseconds kSpin{50};

Uuid identity(const Uuid& parent, std::string_view what) {
  const Key hash = digest(std::string(reinterpret_cast<const char*>(parent.data()), parent.size()) +
                          std::string(what));
  Uuid id;
  std::memcpy(id.data(), hash.data(), id.size());
  return id;
}

// The number of hosts if they have equally many ranks, numbered host by host; else each rank counts
// as a host.
int even_hosts(const std::vector<int>& hosts) {
  const auto local = static_cast<std::size_t>(std::count(hosts.begin(), hosts.end(), 0));
  const auto each = static_cast<int>(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != static_cast<int>(rank / local)) return each;
  }
  return hosts.size() % local == 0 ? static_cast<int>(hosts.size() / local) : each;
}

std::string_view view(const Uuid& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

std::vector<int> hosts_of(const std::vector<join::wire::Member>& members,
                          const std::vector<int>& ranks) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const int rank : ranks) {
    const auto& host = members[static_cast<std::size_t>(rank)].host;
    hosts.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<join::ControlLine> control, std::string name,
                           std::vector<int> ranks, int rank, const Uuid& id, const Config& config,
                           Logger log, std::shared_ptr<memory::Heap> heap)
    : control_(std::move(control)),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      hosts_(hosts_of(control_->members(), ranks_)),
      even_hosts_(even_hosts(hosts_)),
      rank_(rank),
      id_(id),
      config_(config),
      log_(std::move(log)),
      deterministic_(config_.deterministic),
      heap_(std::move(heap)),
      sends_(ranks_.size()),
      recvs_(ranks_.size()) {
  // All ranks of a host come to the same number; so do those of other hosts on this machine, such
  // as containers.
  const auto& members = control_->members();
  const auto member = [&](int rank) -> const join::wire::Member& {
    return members[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(rank)])];
  };
  std::vector<std::string> cores;
  for (int rank = 0; rank < size(); ++rank) {
    if (join::machine_of(member(rank).host) != join::machine_of(member(rank_).host)) continue;
    cores.push_back(member(rank).cores);
  }
  const auto there = static_cast<std::size_t>(join::count_cores(cores));
  policy_.shared_cores = cores.size() > there;
  if (policy_.shared_cores && cores.size() == ranks_.size()) {
    order_ = join::cores_in_turn(cores);
    core_groups_ = join::core_by_core(cores);
  }
  policy_.spin = config_.spin.value_or(kSpin);
  // A worker that spins takes the core from the caller who computes, unless it has one of its own.
  beside_ = policy_;
  if (!config_.spin && 2 * cores.size() > there) beside_.spin = std::chrono::nanoseconds(0);
}

Result<std::shared_ptr<Communicator>> Communicator::world(
    std::shared_ptr<join::ControlLine> control, std::string name, const Config& config, Logger log,
    std::shared_ptr<memory::Heap> heap) {
  std::vector<int> ranks(static_cast<std::size_t>(control->size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  const int rank = control->rank();
  const Uuid id = identity(control->info().id, "world");
  std::shared_ptr<Communicator> made(new Communicator(std::move(control), std::move(name),
                                                      std::move(ranks), rank, id, config,
                                                      std::move(log), std::move(heap)));
  HCCL_RETURN_IF_ERROR(made->open(Deadline::after(config.connect_timeout)));
  return made;
}

Result<std::shared_ptr<Communicator>> Communicator::group(std::string name,
                                                          const std::vector<int>& ranks,
                                                          std::uint64_t instance,
                                                          const Config& config) const {
  std::vector<int> world_ranks;
  std::string what = "group " + name + " #" + std::to_string(instance) + ":";
  int rank = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank_) rank = static_cast<int>(i);
    world_ranks.push_back(ranks_[static_cast<std::size_t>(ranks[i])]);
    what += " " + std::to_string(world_ranks.back());
  }
  std::shared_ptr<Communicator> made(new Communicator(control_, std::move(name),
                                                      std::move(world_ranks), rank,
                                                      identity(id_, what), config, log_, heap_));
  made->tuner_ = tuner_;
  HCCL_RETURN_IF_ERROR(made->open(Deadline::after(config.connect_timeout)));
  return made;
}

std::string Communicator::short_id() const { return short_name(view(id_)); }

bool Communicator::is_world() const { return id_ == identity(control_->info().id, "world"); }

Status Communicator::open(Deadline deadline) {
  control_->add(this);
  transport::OpenArgs args;
  args.rank = rank_;
  args.size = size();
  args.hosts = hosts_;
  args.deadline = deadline;
  args.key = derive(control_->info().secret, "mesh " + std::string(view(id_)));
  args.address = control_->members()[static_cast<std::size_t>(control_->rank())].address;
  args.config = &config_;
  args.heap = heap_;
  args.area_bytes = &exec::LocalEngine::region_bytes;
  // Who does not come is known here; a transport's own exchanges would go on without them. Rank 0
  // of the world adds its tuning.
  if (size() > 1) {
    std::string mine = config_.agreement() + '\0';
    if (tuner_ == nullptr && rank_ == 0) mine += Tuner::offer(config_, log_);
    const auto met = control_->exchange(id_, static_cast<std::uint32_t>(size()),
                                        static_cast<std::uint32_t>(rank_), mine, deadline, failed_);
    if (!met.ok()) return met.status().with_context(name_);
    for (std::size_t i = 0; i < met.value().size(); ++i) {
      const std::string its = met.value()[i].substr(0, met.value()[i].find('\0'));
      if (its == config_.agreement()) continue;
      return Status(Code::kPara, name_ + ": the configurations differ: rank " +
                                     std::to_string(rank_) + " has " + config_.agreement() +
                                     ", rank " + std::to_string(i) + " has " + its);
    }
    if (tuner_ == nullptr) {
      const std::string& root = met.value().front();
      HCCL_ASSIGN_OR_RETURN(tuner_, Tuner::accept(root.substr(config_.agreement().size() + 1)));
    }
  }
  if (tuner_ == nullptr) tuner_ = std::make_shared<Tuner>();
  int exchanges = 0;
  args.exchange = [&](const std::string& mine, Deadline until) {
    return control_->exchange(identity(id_, "exchange " + std::to_string(exchanges++)),
                              static_cast<std::uint32_t>(size()), static_cast<std::uint32_t>(rank_),
                              mine, until, failed_);
  };
  auto mesh = transport::open(config_.transport, args);
  if (!mesh.ok()) {
    if (failed_.raised()) return failed_.reason();
    return mesh.status().with_context(name_ + ": opening transport " + config_.transport);
  }
  mesh_ = std::move(*mesh);
  executor_ = std::make_unique<exec::Executor>(
      *mesh_, std::min<std::size_t>(kStagingBytes, std::size_t{config_.buffer_mb} << 20), order_);
  HCCL_RETURN_IF_ERROR(open_local(args));
  log_->info("communicator {} ({}): rank {} of {}, transport {}{}", name_, short_id(), rank_,
             size(), mesh_->name(),
             local_ == nullptr   ? ""
             : two_level_ == nullptr ? ", collectives in the host's memory"
                                     : ", each host's part of collectives in its memory");
  open_mesh_.store(mesh_.get());
  // A failure that was told before the mesh stood.
  if (failed_.raised()) mesh_->abort(failed_.reason());
  return tune(args.exchange, deadline);
}

// Where the ranks of a host share memory: on the one host, or on all of them, which takes a word
// with the others; a mesh opens for all ranks of a host or for none.
Status Communicator::open_local(const transport::OpenArgs& args) {
  const HostMemory* const memory = mesh_->host_memory();
  const bool alone = memory != nullptr && memory->ranks.size() == ranks_.size();
  if (even_hosts_ > 1 && even_hosts_ < size()) {
    HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> shared,
                          args.exchange(memory == nullptr ? "0" : "1", args.deadline));
    if (std::find(shared.begin(), shared.end(), "0") != shared.end()) return {};
  } else if (!alone) {
    return {};
  }
  local::Watch watch;
  watch.timeout = config_.exec_timeout;
  watch.abort = &failed_;
  watch.policy = policy_;
  watch.background = beside_;
  watch.stalled = [this](std::uint64_t sequence, const std::string& call,
                         const std::vector<int>& awaited) { stalled(sequence, call, awaited); };
  local_ = std::make_unique<exec::LocalEngine>(
      *memory, heap_,
      kernels::StoreRule::of_this_machine(static_cast<int>(memory->ranks.size())),
      std::move(watch));
  if (local_->ranks() > 1) {
    if (Status opened = local_->open(config_.cma); !opened.ok()) return fail(std::move(opened));
  }
  if (!alone) {
    two_level_ = std::make_unique<exec::TwoLevel>(*mesh_, *local_, even_hosts_);
  }
  for (std::size_t op = 0; op < kOps; ++op) {
    // Whoever asks for an algorithm gets a schedule.
    const std::string wanted = config_.algorithm_for(hccl::words(static_cast<Op>(op)));
    on_host_[op] = alone && (wanted.empty() || wanted == "NA" || wanted == "null");
  }
  open_local_.store(local_.get());
  return {};
}

Communicator::~Communicator() {
  control_->remove(this);
  if (mesh_) mesh_->abort(Status(Code::kUnavail, "the communicator was destroyed"));
}

void Communicator::leave() {
  control_->leave(failed_.raised() ? std::chrono::nanoseconds(0) : kLeaveTime);
}

}  // namespace hccl::core
