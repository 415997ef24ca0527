#include "hccl/core/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>

#include "hccl/base/auth.h"
#include "hccl/core/host.h"
#include "hccl/exec/layout.h"
#include "transport/registry.h"

namespace hccl::core {
namespace {

// A peer's closed connection may be the echo of another rank's death or mistake, and who was
// missing at a timeout one rank alone does not know: the hub, which sees all of them, gets this
// long to say. It usually takes a millisecond; only a connection that broke between two living
// ranks costs it all.
constexpr std::chrono::seconds kVerdictTime{2};
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

// The number of hosts if they have equally many ranks, numbered host by host; else 1.
int even_hosts(const std::vector<int>& hosts) {
  const auto local = static_cast<std::size_t>(std::count(hosts.begin(), hosts.end(), 0));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != static_cast<int>(rank / local)) return 1;
  }
  return hosts.size() % local == 0 ? static_cast<int>(hosts.size() / local) : 1;
}

std::string_view view(const Uuid& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

std::vector<int> hosts_of(const std::vector<wire::Member>& members, const std::vector<int>& ranks) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const int rank : ranks) {
    const auto& host = members[static_cast<std::size_t>(rank)].host;
    hosts.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Control> control, std::string name,
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
  const auto member = [&](int rank) -> const wire::Member& {
    return members[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(rank)])];
  };
  std::vector<std::string> cores;
  for (int rank = 0; rank < size(); ++rank) {
    if (machine_of(member(rank).host) != machine_of(member(rank_).host)) continue;
    cores.push_back(member(rank).cores);
  }
  policy_.shared_cores = cores.size() > static_cast<std::size_t>(count_cores(cores));
  policy_.spin = config_.spin.value_or(kSpin);
}

Result<std::shared_ptr<Communicator>> Communicator::world(std::shared_ptr<Control> control,
                                                          std::string name, const Config& config,
                                                          Logger log,
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
  args.area_bytes = &exec::host::HostPath::area_bytes;
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
      *mesh_, std::min<std::size_t>(kStagingBytes, std::size_t{config_.buffer_mb} << 20));
  HCCL_RETURN_IF_ERROR(open_host_path(args));
  log_->info("communicator {} ({}): rank {} of {}, transport {}{}", name_, short_name(view(id_)),
             rank_, size(), mesh_->name(),
             host_path_ == nullptr   ? ""
             : two_level_ == nullptr ? ", collectives in the host's memory"
                                     : ", each host's part of collectives in its memory");
  open_mesh_.store(mesh_.get());
  // A failure that was told before the mesh stood.
  if (failed_.raised()) mesh_->abort(failed_.reason());
  return tune(args.exchange, deadline);
}

// Where the ranks of a host share memory: on the one host, or on all of them, which takes a word
// with the others; a mesh opens for all ranks of a host or for none.
Status Communicator::open_host_path(const transport::OpenArgs& args) {
  const transport::HostMemory* const memory = mesh_->host_memory();
  const bool alone = memory != nullptr && memory->ranks.size() == ranks_.size();
  if (even_hosts_ > 1 && even_hosts_ < size()) {
    HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> shared,
                          args.exchange(memory == nullptr ? "0" : "1", args.deadline));
    if (std::find(shared.begin(), shared.end(), "0") != shared.end()) return {};
  } else if (!alone) {
    return {};
  }
  exec::host::Watch watch;
  watch.timeout = config_.exec_timeout;
  watch.abort = &failed_;
  watch.policy = policy_;
  watch.stalled = [this](std::uint64_t sequence, const std::string& call,
                         const std::vector<int>& awaited) { stalled(sequence, call, awaited); };
  host_path_ = std::make_unique<exec::host::HostPath>(
      *memory, heap_,
      exec::host::Ways::for_host(static_cast<int>(memory->ranks.size()), policy_.shared_cores),
      kernels::StoreRule::of_this_machine(static_cast<int>(memory->ranks.size())),
      std::move(watch));
  if (!alone) {
    two_level_ = std::make_unique<exec::TwoLevel>(*mesh_, *host_path_, even_hosts_);
  }
  for (std::size_t op = 0; op < kOps; ++op) {
    // Whoever asks for an algorithm gets a schedule.
    const std::string wanted =
        config_.algorithm_for(schedule::words(static_cast<schedule::Op>(op)));
    on_host_[op] = alone && (wanted.empty() || wanted == "NA" || wanted == "null");
  }
  open_host_path_.store(host_path_.get());
  return {};
}

Communicator::~Communicator() {
  control_->remove(this);
  if (mesh_) mesh_->abort(Status(Code::kUnavail, "the communicator was destroyed"));
}

void Communicator::leave() {
  control_->leave(failed_.raised() ? std::chrono::nanoseconds(0) : kLeaveTime);
}

void Communicator::on_failure(const Uuid& scope, const Status& why) {
  if (scope != Uuid{} && scope != id_) return;
  if (scope == Uuid{} && why.culprit() >= 0 &&
      std::find(ranks_.begin(), ranks_.end(), why.culprit()) == ranks_.end()) {
    return;
  }
  if (!failed_.raise(why)) return;
  verdict_.ring();
  if (transport::Mesh* mesh = open_mesh_.load()) mesh->abort(why);
  if (exec::host::HostPath* host = open_host_path_.load()) host->wake();
}

exec::Limits Communicator::limits(std::uint64_t sequence) {
  exec::Limits limits;
  limits.deadline =
      config_.exec_timeout.count() == 0 ? Deadline::never() : Deadline::after(config_.exec_timeout);
  limits.abort = &failed_;
  limits.policy = policy_;
  if (size() > 1) {
    limits.stalled = [this, sequence](const std::string& call, const std::vector<int>& awaited) {
      stalled(sequence, call, awaited);
    };
  }
  return limits;
}

void Communicator::stalled(std::uint64_t sequence, const std::string& call,
                           std::vector<int> awaited) {
  log_->debug("{}: waiting in {}", name_, call);
  for (int& peer : awaited) peer = ranks_[static_cast<std::size_t>(peer)];
  control_->stalled(id_, sequence, call, awaited);
}

const schedule::Choice& Communicator::choose(const exec::Call& call) {
  const auto blocks = static_cast<std::uint64_t>(exec::blocks_of(call.op, size()));
  const std::uint64_t bytes =
      call.op == schedule::Op::kBarrier ? 0 : call.count * size_of(call.type) * blocks;
  const bool strict = deterministic() == Deterministic::kStrict && exec::reduces(call.op);
  const auto op = static_cast<std::size_t>(call.op);
  // The product's upper bits spread sizes that are multiples of one another.
  Chosen& chosen = chosen_[op][(bytes * 0x9E3779B97F4A7C15u) >> 61 & (kRemembered - 1)];
  const bool known = chosen.bytes == bytes && chosen.strict == strict;
  if (known && last_choice_[op] == &chosen.choice) return chosen.choice;
  const std::lock_guard lock(chosen_mutex_);
  last_choice_[op] = &chosen.choice;
  if (known) return chosen.choice;
  // Only direct exchange folds all contributions at once and in rank order, as the host path does.
  const std::string wanted = strict ? "direct" : config_.algorithm_for(schedule::words(call.op));
  chosen.choice = schedule::select(call.op, size(), bytes, wanted, even_hosts_,
                                   tuned_.messages ? &*tuned_.messages : nullptr);
  if (strict) chosen.choice.reason = "HCCL_DETERMINISTIC is strict";
  chosen.bytes = bytes;
  chosen.strict = strict;
  const schedule::Choice& choice = chosen.choice;
  const auto mark =
      static_cast<std::uint32_t>(choice.algorithm - schedule::algorithms().data() + 1) |
      static_cast<std::uint32_t>(choice.depth) << 8 |
      static_cast<std::uint32_t>(choice.lanes) << 24;
  std::uint32_t& told = told_[op][static_cast<std::size_t>(std::bit_width(bytes))];
  if (told != mark) {
    told = mark;
    log_->info("{} of {} bytes by {} (depth {}, lanes {}): {}; {}", schedule::words(call.op), bytes,
               choice.algorithm->name, choice.depth, choice.lanes, choice.reason, tuned_.source);
  }
  return choice;
}

std::string Communicator::algorithm(schedule::Op op) const {
  if (const char* const way = ways_[static_cast<std::size_t>(op)].load()) return way;
  if (exec::has_blocks(op)) return "direct";
  const std::lock_guard lock(chosen_mutex_);
  const schedule::Choice* const last = last_choice_[static_cast<std::size_t>(op)];
  return last == nullptr ? "" : std::string(last->algorithm->name);
}

Status Communicator::run(const exec::Call& call) {
  return queue_.run([this, &call] { return execute(call); });
}

Status Communicator::run(const exec::Call& call, const OpQueue::Ticket& place) {
  return queue_.run(place, [this, &call] { return execute(call); });
}

OpQueue::Ticket Communicator::submit(const exec::Call& call, bool deferred,
                                     std::function<void()> before, std::function<void()> after) {
  auto work = [this, call, before = std::move(before), after = std::move(after)] {
    before();
    Status status = execute(call);
    if (status.ok()) after();
    return status;
  };
  return deferred ? queue_.defer(std::move(work)) : queue_.submit(std::move(work));
}

Status Communicator::execute(const exec::Call& call) {
  if (failed_.raised()) return refused(exec::envelope(call, sequence_ + 1, 0));
  if (suspended()) return refused_suspended();
  if (on_host_[static_cast<std::size_t>(call.op)]) {
    return execute_on_host(call);
  }
  const bool blocks = exec::has_blocks(call.op);
  const schedule::Choice* const choice = blocks ? nullptr : &choose(call);
  const std::uint64_t sequence = ++sequence_;
  const std::uint64_t number = recorder_.begin(exec::envelope(call, sequence, 0),
                                               blocks ? "direct" : choice->algorithm->name);
  Status status;
  if (blocks) {
    status = executor_->run_blocks(call, sequence, limits(sequence));
  } else if (two_level_ != nullptr && choice->algorithm->name == "two_level") {
    status = two_level_->run(call, sequence, limits(sequence));
    if (status.ok() && log_->should_log(spdlog::level::info)) tell_between(call);
  } else {
    status = executor_->run(call, *choice, sequence, limits(sequence));
  }
  recorder_.end(number, status.code());
  return status.ok() ? status : failed_in(call, sequence, std::move(status));
}

Status Communicator::execute_on_host(const exec::Call& call) {
  const std::uint64_t sequence = ++sequence_;
  const exec::Envelope envelope = exec::envelope(call, sequence, 0);
  const exec::host::Run run = host_path_->enter(call, envelope);
  const std::uint64_t number = recorder_.begin(envelope, "host");
  Status status = host_path_->finish(run);
  const char* const way = exec::host::words(host_path_->way());
  recorder_.end(number, status.code(), way);
  std::atomic<const char*>& last = ways_[static_cast<std::size_t>(call.op)];
  if (last.load(std::memory_order_relaxed) != way) last.store(way, std::memory_order_relaxed);
  if (status.ok() && log_->should_log(spdlog::level::info)) tell_way(call, way);
  return status.ok() ? status : failed_in(call, sequence, std::move(status));
}

Status Communicator::failed_in(const exec::Call& call, std::uint64_t sequence, Status status) {
  status = fail(std::move(status));
  // The other texts name the operation already.
  if (status.code() != Code::kRemote) return status;
  return status.with_context(exec::words(exec::envelope(call, sequence, 0)));
}

Status Communicator::run_transfers(std::span<exec::Transfer> transfers) {
  if (transfers.empty()) return {};
  if (suspended() && !failed_.raised()) return refused_suspended();
  for (exec::Transfer& each : transfers) {
    each.sequence = ++(each.sending ? sends_ : recvs_)[static_cast<std::size_t>(each.peer)];
  }
  if (failed_.raised()) return refused(exec::envelope(transfers.front()));
  // Of a batch, the first one is recorded.
  const std::uint64_t number =
      recorder_.begin(exec::envelope(transfers.front()),
                      transfers.size() == 1 ? "point to point" : "point to point, batch");
  exec::Limits bounds = limits(transfers.front().sequence);
  bounds.stalled = nullptr;
  Status status = executor_->exchange(transfers, bounds);
  recorder_.end(number, status.code());
  return status.ok() ? status : fail(std::move(status));
}

Status Communicator::send(int peer, const void* data, std::uint64_t count, DataType type) {
  // Only read.
  exec::Transfer transfer{true, peer, const_cast<void*>(data), count, type, 0};
  return exchange({&transfer, 1});
}

Status Communicator::recv(int peer, void* data, std::uint64_t count, DataType type) {
  exec::Transfer transfer{false, peer, data, count, type, 0};
  return exchange({&transfer, 1});
}

Status Communicator::exchange(std::span<exec::Transfer> transfers) {
  return queue_.run([this, transfers] { return run_transfers(transfers); });
}

Status Communicator::exchange(std::span<exec::Transfer> transfers, const OpQueue::Ticket& place) {
  return queue_.run(place, [this, transfers] { return run_transfers(transfers); });
}

void Communicator::await_verdict(int suspect) {
  static_cast<void>(hccl::wait([&] { return suspect >= 0 && control_->has_left(suspect); },
                               Deadline::after(kVerdictTime), &failed_, verdict_,
                               WaitPolicy{.spin = std::chrono::nanoseconds(0)}));
}

Status Communicator::fail(Status why) {
  if (!failed_.raised()) {
    // World ranks travel; the text keeps the numbers of this communicator, so it names it.
    const int culprit = why.culprit() >= 0 ? ranks_[static_cast<std::size_t>(why.culprit())] : -1;
    why = Status(why.code(), name_ + ": " + why.message(), culprit);
    if (why.code() == Code::kRemote) await_verdict(culprit);
    if (why.code() == Code::kTimeout) {
      control_->report(id_, why);
      await_verdict(-1);
    }
    if (failed_.raise(why)) control_->report(id_, why);
  }
  record_end();
  return failed_.reason();
}

// A call that came after the failure: the first one shows what the rank wanted next.
Status Communicator::refused(const exec::Envelope& call) {
  if (!recorded_) {
    recorder_.end(recorder_.begin(call, "not begun"), failed_.reason().code());
    record_end();
  }
  return failed_.reason();
}

Status Communicator::refused_suspended() const {
  return Status(Code::kSuspending, name_ + " is suspended: resume it, then repeat the operation");
}

void Communicator::record_end() {
  if (recorded_) return;
  recorded_ = true;
  const Status reason = failed_.reason();
  log_->error("{}: {}", name_, reason.message());
  if (config_.flight_recorder_dir == "off") return;
  const std::string directory =
      config_.flight_recorder_dir.empty() ? "/tmp" : config_.flight_recorder_dir;
  const std::string path = directory + "/hccl-flight-" + short_name(view(id_)) + "-rank" +
                           std::to_string(rank_) + "-" + std::to_string(::getpid()) + ".json";
  const Status written = recorder_.dump(path, name_, rank_, size(), reason);
  log_->error("{}: last operations: {}", name_, written.ok() ? path : written.message());
}

}  // namespace hccl::core
