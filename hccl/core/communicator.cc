// Makes and ends communicators.
#include "hccl/core/communicator.h"

#include <algorithm>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "transport/doors.h"

namespace hccl::core {
namespace {

/// The status of the exception being handled. It names this rank if there is memory for that.
Status caught_by(int rank, int world_rank) noexcept {
  Status why = caught();
  try {
    return {why.code(), "rank " + std::to_string(rank) + ": " + why.message(), world_rank};
  } catch (...) {
    return why;
  }
}

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

}  // namespace

Communicator::Communicator(std::shared_ptr<join::World> control, std::string name,
                           std::vector<int> ranks, int rank, const Uuid& id, const Config& config,
                           Logger log, std::shared_ptr<memory::Heap> heap,
                           std::shared_ptr<transport::Doors> doors,
                           std::shared_ptr<transport::Siblings> siblings, const Selection* parent)
    : control_(std::move(control)),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      id_(id),
      config_(config),
      log_(std::move(log)),
      placement_(control_->members(), ranks_, rank_, config_.spin),
      heap_(std::move(heap)),
      doors_(std::move(doors)),
      siblings_(std::move(siblings)),
      failure_(*control_, id_, messages_of(id_), name_, ranks_, rank_, config_.flight_recorder_dir,
               log_, recorder_),
      settings_(config_),
      local_timeout_(config_.exec_timeout),
      opening_(
          {*control_, name_, ranks_, rank_, id_, config_, placement_, heap_, doors_, siblings_},
          failure_),
      selection_(config_, log_, placement_, name_, rank_, parent),
      sends_(ranks_.size()),
      recvs_(ranks_.size()),
      suspicion_(log_, name_, rank_),
      mailbox_(std::make_shared<Mailbox>(
          rank_, size(), name_, [this](const AbortFlag& abort) { return opening_.mailbox(abort); },
          placement_.policy, log_,
          [this](const Status& why) {
            failure_.abort(
                Status(why.code(), why.message(), ranks_[static_cast<std::size_t>(rank_)]));
          })) {}

Result<std::shared_ptr<Communicator>> Communicator::world(
    std::shared_ptr<join::World> control, std::string name, const Config& config, Logger log,
    std::shared_ptr<transport::Siblings> siblings, std::shared_ptr<memory::Heap> heap) {
  std::vector<int> ranks(static_cast<std::size_t>(control->size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  const int rank = control->rank();
  const Uuid id = identity(control->info().id, "world");
  std::shared_ptr<Communicator> made(new Communicator(
      std::move(control), std::move(name), std::move(ranks), rank, id, config, std::move(log),
      std::move(heap), std::make_shared<transport::Doors>(), std::move(siblings), nullptr));
  HCCL_RETURN_IF_ERROR(made->meet(config.connect_timeout));
  HCCL_RETURN_IF_ERROR(made->open(Deadline::after(config.connect_timeout)));
  return made;
}

Result<std::shared_ptr<Communicator>> Communicator::group(
    std::string name, const std::vector<int>& ranks, std::uint64_t instance, const Config* config,
    std::chrono::nanoseconds patience, bool idle, bool own_name) const {
  std::vector<int> world_ranks;
  std::string what =
      "group " + (own_name ? std::string() : name) + " #" + std::to_string(instance) + ":";
  int rank = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank_) rank = static_cast<int>(i);
    world_ranks.push_back(ranks_[static_cast<std::size_t>(ranks[i])]);
    what += " " + std::to_string(world_ranks.back());
  }
  const Uuid id = identity(id_, what);
  const Config& its = config != nullptr ? *config : config_;
  std::shared_ptr<Communicator> made;
  try {
    made.reset(new Communicator(control_, std::move(name), std::move(world_ranks), rank, id, its,
                                log_, heap_, doors_, siblings_, &selection_));
  } catch (...) {  // the others need not wait for this rank
    control_->report(id, caught_by(rank_, control_->rank()));
    throw;
  }
  if (patience.count() == 0) patience = its.connect_timeout;
  HCCL_RETURN_IF_ERROR(made->meet(patience));
  if (!idle) HCCL_RETURN_IF_ERROR(made->open(Deadline::after(its.connect_timeout)));
  return made;
}

// All living ranks get the same answer, which alone decides. So no rank has the new communicator
// while another one tries again. listen() gets the failures since the answer.
Result<std::shared_ptr<Communicator>> Communicator::shrink(std::string name,
                                                           const std::vector<int>& kept,
                                                           std::uint64_t number,
                                                           const Config* config) const {
  const Config& its = config != nullptr ? *config : config_;
  const Uuid id = identity(id_, "shrink #" + std::to_string(number));
  std::vector<int> members;
  for (const int rank : kept) members.push_back(ranks_[static_cast<std::size_t>(rank)]);
  auto agreed =
      control_->survivors(id, members, its.agreement(), Deadline::after(its.connect_timeout), name);
  if (!agreed.ok()) return agreed.status().with_context(name);
  std::vector<int> ranks = std::move(agreed->members);
  const auto mine = std::ranges::find(ranks, control_->rank()) - ranks.begin();
  try {
    std::shared_ptr<Communicator> made(new Communicator(control_, std::move(name), std::move(ranks),
                                                        static_cast<int>(mine), id, its, log_,
                                                        heap_, doors_, siblings_, &selection_));
    made->shrunk_ = true;
    made->failure_.listen();
    made->hear_of_messages();
    control_->stay();
    return made;
  } catch (...) {  // the others need not wait for this rank
    control_->report(id, caught_by(static_cast<int>(mine), control_->rank()));
    throw;
  }
}

bool Communicator::is_world() const { return id_ == identity(control_->info().id, "world"); }

// Until the communicator is open, only messages with tags can run.
Status Communicator::meet(std::chrono::nanoseconds patience) try {
  failure_.listen();
  if (size() > 1) {
    HCCL_RETURN_IF_ERROR(opening_.compare_configurations(selection_, Deadline::after(patience)));
  } else if (selection_.asks()) {
    static_cast<void>(selection_.offer());  // warns of a bad file
  }
  hear_of_messages();
  return {};
} catch (...) {
  return failure_.thrown();
}

void Communicator::hear_of_messages() {
  failure_.interrupt_with([this](const Status& why, int) { mailbox_->end(why); });
  failure_.summoned_with([this] { mailbox_->start(); },
                         [this](const Status& why) { mailbox_->end(why); });
}

Status Communicator::open(Deadline deadline, const std::function<void()>& waits) try {
  recorder_.take_memory();
  HCCL_ASSIGN_OR_RETURN(mesh_, opening_.mesh(deadline, waits));
  executor_ = std::make_unique<exec::Executor>(
      *mesh_, std::min<std::size_t>(kStagingBytes, std::size_t{config_.buffer_mb} << 20),
      placement_.order);
  Waiter waiter = limits(false);
  waiter.deadline = Deadline::never();
  waiter.timeout = config_.exec_timeout;
  HCCL_ASSIGN_OR_RETURN(local_, opening_.local(*mesh_, std::move(waiter), deadline));
  if (local_ != nullptr && local_->ranks() < size())
    two_level_ = std::make_unique<exec::TwoLevel>(*mesh_, *local_, placement_.even_hosts);
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
  const HostMemory* const memory = mesh_->host_memory();
  memory::Heap* const shared = memory != nullptr && memory->heaps_shared() ? heap_.get() : nullptr;
  const Selection::Engines engines{mesh_->name(),    *executor_, local_.get(),
                                   two_level_.get(), shared,     is_world()};
  const Status chosen = selection_.open(engines, limits(false));
  if (!chosen.ok()) return failure_.fail(chosen);
  open_.store(true, std::memory_order_release);
  return {};
} catch (...) {
  return failure_.thrown();
}

void Communicator::abort(const std::string& reason) {
  Status why;
  try {
    why = Status(Code::kUnavail, name_ + ": rank " + std::to_string(rank_) +
                                     " aborted the communicator" +
                                     (reason.empty() ? "" : ": " + reason));
  } catch (...) {
    why = caught();
  }
  failure_.abort(why);
}

// Works even if there is no memory for a text.
Communicator::~Communicator() {
  requests_->end(false);
  failure_.stop_listening();
  Status over;
  try {
    over = Status(Code::kUnavail, name_ + ": the communicator was destroyed");
    end_opening(over);
    mailbox_->end(over);
  } catch (...) {
    if (over.ok()) over = caught();
  }
  mailbox_->stop();
  if (mesh_) mesh_->abort(std::move(over));
}

// Ranks that open connections for messages must not wait for this rank, which leaves.
void Communicator::end_opening(const Status& why) {
  if (mailbox_->end_opening(why)) control_->absent(messages_of(id_));
}

void Communicator::leave() try {
  if (!has_groups()) return refused({});  // the ranks of a group stay in their world
  const bool last = control_->goes();
  end_opening(Status(Code::kUnavail, name_ + ": this rank has left"));
  if (!last) return refused({});
  control_->leave();
} catch (...) {  // the others need not wait for this rank
  static_cast<void>(failure_.thrown());
  throw;
}

}  // namespace hccl::core
