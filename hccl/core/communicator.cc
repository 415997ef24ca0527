// How a communicator comes to be, and how it ends.
#include "hccl/core/communicator.h"

#include <algorithm>
#include <cstring>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "transport/registry.h"

namespace hccl::core {
namespace {

constexpr std::chrono::seconds kLeaveTime{1};
constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

Uuid identity(const Uuid& parent, std::string_view what) {
  const Key hash = digest(std::string(view(parent)) + std::string(what));
  Uuid id;
  std::memcpy(id.data(), hash.data(), id.size());
  return id;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<join::ControlLine> control, std::string name,
                           std::vector<int> ranks, int rank, const Uuid& id, const Config& config,
                           Logger log, std::shared_ptr<memory::Heap> heap, const Selection* parent)
    : control_(std::move(control)),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      id_(id),
      config_(config),
      log_(std::move(log)),
      placement_(control_->members(), ranks_, rank_, config_.spin),
      heap_(std::move(heap)),
      failure_(*control_, id_, name_, ranks_, rank_, config_.flight_recorder_dir, log_, recorder_),
      deterministic_(config_.deterministic),
      timeout_(config_.exec_timeout),
      local_timeout_(config_.exec_timeout),
      selection_(config_, log_, placement_, name_, rank_, parent),
      sends_(ranks_.size()),
      recvs_(ranks_.size()),
      suspicion_(log_, name_, rank_),
      mailbox_(std::make_shared<Mailbox>(
          rank_, size(), name_, [this](const AbortFlag& abort) { return open_mailbox(abort); },
          placement_.policy, log_)) {}

Result<std::shared_ptr<Communicator>> Communicator::world(
    std::shared_ptr<join::ControlLine> control, std::string name, const Config& config, Logger log,
    std::shared_ptr<memory::Heap> heap) {
  std::vector<int> ranks(static_cast<std::size_t>(control->size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  const int rank = control->rank();
  const Uuid id = identity(control->info().id, "world");
  std::shared_ptr<Communicator> made(new Communicator(std::move(control), std::move(name),
                                                      std::move(ranks), rank, id, config,
                                                      std::move(log), std::move(heap), nullptr));
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
  const Uuid id = identity(id_, what);
  std::shared_ptr<Communicator> made;
  try {
    made.reset(new Communicator(control_, std::move(name), std::move(world_ranks), rank, id, config,
                                log_, heap_, &selection_));
  } catch (...) {  // the others need not wait for this rank
    control_->report(id, caught().with_context(name_ + ": rank " + std::to_string(rank_)));
    throw;
  }
  HCCL_RETURN_IF_ERROR(made->open(Deadline::after(config.connect_timeout)));
  return made;
}

bool Communicator::is_world() const { return id_ == identity(control_->info().id, "world"); }

Status Communicator::open(Deadline deadline) try {
  failure_.listen();
  if (size() > 1) HCCL_RETURN_IF_ERROR(compare_configurations(deadline));
  const transport::OpenArgs args = mesh_arguments(deadline);
  HCCL_RETURN_IF_ERROR(open_mesh(args));
  HCCL_RETURN_IF_ERROR(open_local(args));
  log_->info("communicator {} ({}): rank {} of {}, transport {}{}", name_, short_name(view(id_)),
             rank_, size(), mesh_->name(),
             local_ == nullptr       ? ""
             : two_level_ == nullptr ? ", collectives in the host's memory"
                                     : ", each host's part of collectives in its memory");
  failure_.interrupt_with([this](const Status& why, int dead) {
    mesh_->abort(why);
    if (local_ != nullptr) {
      local_->lost(dead);
      local_->wake();
    }
    mailbox_->end(why);
  });
  failure_.summoned_with([this] { mailbox_->start(); });
  const Selection::Engines engines{mesh_->name(),    *executor_,  local_.get(),
                                   two_level_.get(), heap_.get(), is_world()};
  const Status chosen = selection_.open(engines, limits(false));
  return chosen.ok() ? chosen : failure_.fail(chosen);
} catch (...) {
  return failure_.thrown();
}

// Absent ranks are found here, before a transport waits for them in exchanges of its own. Rank 0 of
// the world adds its costs.
Status Communicator::compare_configurations(Deadline deadline) {
  const std::string mine = config_.agreement();
  const bool offers = selection_.asks() && rank_ == 0;
  const auto met =
      control_->exchange(id_, static_cast<std::uint32_t>(size()), static_cast<std::uint32_t>(rank_),
                         mine + '\0' + (offers ? selection_.offer() : std::string()), deadline,
                         failure_.flag(), name_, join::wire::set_of(ranks_));
  if (!met.ok()) return met.status().with_context(name_);
  for (std::size_t i = 0; i < met.value().size(); ++i) {
    const std::string its = met.value()[i].substr(0, met.value()[i].find('\0'));
    if (its == mine) continue;
    return Status(Code::kPara, name_ + ": the configurations differ: rank " +
                                   std::to_string(rank_) + " has " + mine + ", rank " +
                                   std::to_string(i) + " has " + its);
  }
  if (!selection_.asks()) return {};
  return selection_.accept(std::string_view(met.value().front()).substr(mine.size() + 1));
}

Result<std::vector<std::string>> Communicator::gather(const Uuid& key, const std::string& mine,
                                                      Deadline deadline,
                                                      const AbortFlag& abort) const {
  return control_->exchange(key, static_cast<std::uint32_t>(size()),
                            static_cast<std::uint32_t>(rank_), mine, deadline, abort, name_);
}

transport::OpenArgs Communicator::mesh_arguments(Deadline deadline) {
  transport::OpenArgs args;
  args.rank = rank_;
  args.size = size();
  args.hosts = placement_.hosts;
  args.deadline = deadline;
  args.abort = &failure_.flag();
  args.key = derive(control_->info().secret, "mesh " + std::string(view(id_)));
  args.address = control_->members()[static_cast<std::size_t>(control_->rank())].address;
  args.config = &config_;
  args.heap = heap_;
  args.area_bytes = &exec::LocalEngine::region_bytes;
  args.exchange = [this](const std::string& mine, Deadline until) {
    return gather(identity(id_, "exchange " + std::to_string(exchanges_++)), mine, until,
                  failure_.flag());
  };
  return args;
}

Status Communicator::open_mesh(const transport::OpenArgs& args) {
  auto mesh = transport::open(config_.transport, args);
  if (!mesh.ok()) {
    if (failure_.raised()) return failure_.reason();
    const Status why =
        mesh.status().with_context(name_ + ": opening transport " + config_.transport);
    // What this process lacks, the others cannot know; they need not wait for it.
    if (why.code() == Code::kSyscall || why.code() == Code::kOom) {
      failure_.abort(Status(why.code(), "rank " + std::to_string(rank_) + ": " + why.message(),
                            ranks_[static_cast<std::size_t>(rank_)]));
    }
    return why;
  }
  mesh_ = std::move(*mesh);
  executor_ = std::make_unique<exec::Executor>(
      *mesh_, std::min<std::size_t>(kStagingBytes, std::size_t{config_.buffer_mb} << 20),
      placement_.order);
  return {};
}

// Where the ranks of a host share memory: on the one host, or on all of them, which takes a word
// with the others; a mesh opens for all ranks of a host or for none.
Status Communicator::open_local(const transport::OpenArgs& args) {
  const HostMemory* const memory = mesh_->host_memory();
  const bool alone = memory != nullptr && memory->ranks.size() == ranks_.size();
  if (placement_.even_hosts > 1 && placement_.even_hosts < size()) {
    HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> shared,
                          args.exchange(memory == nullptr ? "0" : "1", args.deadline));
    if (std::find(shared.begin(), shared.end(), "0") != shared.end()) return {};
  } else if (!alone) {
    return {};
  }
  Waiter waiter = limits(false);
  waiter.deadline = Deadline::never();
  waiter.timeout = config_.exec_timeout;
  local_ = std::make_unique<exec::LocalEngine>(
      *memory, heap_, kernels::StoreRule::of_this_machine(static_cast<int>(memory->ranks.size())),
      std::move(waiter), placement_.worker_policy);
  if (local_->ranks() > 1) {
    if (Status opened = local_->open(config_.cma); !opened.ok()) {
      return failure_.fail(std::move(opened));
    }
  }
  if (!alone) {
    two_level_ = std::make_unique<exec::TwoLevel>(*mesh_, *local_, placement_.even_hosts);
  }
  return {};
}

// A rank that needs it summons the others: a communicator without such messages has one mesh. It
// shares no memory of the host.
Result<std::unique_ptr<transport::Mesh>> Communicator::open_mailbox(const AbortFlag& abort) {
  control_->summon(id_);
  transport::OpenArgs args = mesh_arguments(Deadline::after(config_.connect_timeout));
  args.abort = &abort;
  args.key = derive(control_->info().secret, "mailbox " + std::string(view(id_)));
  args.heap = nullptr;
  args.area_bytes = nullptr;
  args.exchange = [this, &abort, number = 0](const std::string& mine, Deadline until) mutable {
    return gather(identity(id_, "mailbox exchange " + std::to_string(number++)), mine, until,
                  abort);
  };
  auto mesh = transport::open(config_.transport, args);
  if (mesh.ok()) return mesh;
  return mesh.status().with_context(name_ + ": opening transport " + config_.transport +
                                    " for messages with tags");
}

void Communicator::abort(const std::string& reason) {
  failure_.abort(Status(Code::kUnavail, name_ + ": rank " + std::to_string(rank_) +
                                            " aborted the communicator" +
                                            (reason.empty() ? "" : ": " + reason)));
}

// Ends also where there is no memory for a text.
Communicator::~Communicator() {
  failure_.stop_listening();
  Status over;
  try {
    over = Status(Code::kUnavail, name_ + ": the communicator was destroyed");
    mailbox_->end(over);
  } catch (...) {
    if (over.ok()) over = caught();
  }
  mailbox_->stop();
  if (mesh_) mesh_->abort(std::move(over));
}

void Communicator::leave() {
  control_->leave(failure_.raised() ? std::chrono::nanoseconds(0) : kLeaveTime);
}

}  // namespace hccl::core
