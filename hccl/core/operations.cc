// Runs the operations of a communicator in their order: inside a host, over several hosts, or as
// messages.
#include "hccl/core/operations.h"

#include <algorithm>
#include <cstring>

#include "hccl/base/auth.h"
#include "hccl/kernels/folding.h"
#include "transport/registry.h"

namespace hccl::core {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

// Even on a busy machine an operation ends within these times after its deadline, or after a
// failure of the communicator. The times include the wait for the root's verdict.
constexpr std::chrono::seconds kEndAfterDeadline{5};
constexpr std::chrono::seconds kEndAfterFailure{2};
// The longest wait for the root's verdict on a rank that had left before the group opened.
constexpr std::chrono::seconds kVerdictOnAbsent{3};

}  // namespace

Operations::Operations(const Membership& is, const RunSettings& settings, Opening& opening,
                       Failure& failure, const Selection* parent)
    : is_(is),
      settings_(settings),
      opening_(opening),
      failure_(failure),
      recorder_(failure.recorder()),
      local_timeout_(is.config.exec_timeout),
      selection_(is, parent),
      sends_(is.ranks.size()),
      recvs_(is.ranks.size()),
      suspicion_(is.log, is.name, is.rank) {}

Status Operations::run(const Call& call) {
  if (const WorkQueue::Turn turn(queue_); turn) return execute(call);
  if (queue_.runs_here()) return refused_inside();
  // The function gets a copy of the call, because the thread may leave run() by longjmp.
  return queue_.wait(queue_.defer([this, call] { return execute(call); }));
}

Status Operations::run(const Call& call, const WorkQueue::Ticket& place) {
  return queue_.run(place, [this, &call] { return execute(call); });
}

WorkQueue::Ticket Operations::submit(const Call& call, bool deferred, std::function<void()> before,
                                     std::function<void()> after) {
  auto work = [this, call, before = std::move(before), after = std::move(after)] {
    before();
    Status status = execute(call);
    if (status.ok()) after();
    return status;
  };
  return deferred ? queue_.defer(std::move(work)) : queue_.submit(std::move(work));
}

Status Operations::open(Deadline deadline) {
  Status opened;
  const auto open_world = [&] {
    try {
      recorder_.take_memory();
      opened = open(deadline, false);
    } catch (...) {
      opened = failure_.thrown();
    }
    return opened.ok() ? Opener::State::kOpen : Opener::State::kFailed;
  };
  opener_.open(open_world, Waiter());
  return opened;
}

void Operations::open_aside() {
  if (transport::is_plugin(is_.config.transport)) return;
  try {
    opener_.open_aside([this] { return open_group(); });
  } catch (...) {
    static_cast<void>(failure_.settle_thrown());
  }
}

// Throws nothing. Any failure is reported to all ranks. The next operation of this rank records it.
Opener::State Operations::open_group() {
  try {
    const Status opened = open(limits(false).deadline, true);
    if (opened.ok()) return absent_.empty() ? Opener::State::kOpen : Opener::State::kPartly;
    static_cast<void>(failure_.settle(opened));
  } catch (...) {
    static_cast<void>(failure_.settle_thrown());
  }
  return Opener::State::kFailed;
}

Status Operations::open(Deadline deadline, bool summons) {
  HCCL_ASSIGN_OR_RETURN(OpenedMesh opened, opening_.mesh(deadline, summons));
  absent_ = std::move(opened.absent);
  mesh_ = std::move(opened.mesh);
  executor_ = std::make_unique<exec::Executor>(
      *mesh_, std::min<std::size_t>(kStagingBytes, std::size_t{is_.config.buffer_mb} << 20),
      is_.placement.order);
  Waiter waiter = limits(false);
  waiter.deadline = Deadline::never();
  waiter.timeout = is_.config.exec_timeout;
  if (absent_.empty()) {
    HCCL_ASSIGN_OR_RETURN(local_, opening_.local(*mesh_, std::move(waiter), deadline));
  }
  if (local_ != nullptr && local_->ranks() < is_.size())
    two_level_ = std::make_unique<exec::TwoLevel>(*mesh_, *local_, is_.placement.even_hosts);
  is_.log->info("communicator {} ({}): rank {} of {}, transport {}{}", is_.name,
                short_name(view(is_.id)), is_.rank, is_.size(), mesh_->name(),
                local_ == nullptr       ? ""
                : two_level_ == nullptr ? ", collectives in the host's memory"
                                        : ", each host's part of collectives in its memory");
  failure_.interrupt_with([this](const Status& why, int dead) {
    mesh_->abort(why);
    if (local_ != nullptr) {
      local_->lost(dead);
      local_->waits().wake();
    }
  });
  const HostMemory* const memory = mesh_->host_memory();
  memory::Heap* const shared =
      memory != nullptr && memory->heaps_shared() ? is_.heap.get() : nullptr;
  const Selection::Engines engines{mesh_->name(), *executor_, local_.get(), two_level_.get(),
                                   shared};
  const Status chosen = selection_.open(engines, limits(false));
  return chosen.ok() ? chosen : failure_.settle(chosen);
}

Status Operations::execute(const Call& call, bool scaled) try {
  if (failure_.raised()) return failure_.refuse(envelope(call, sequence_ + 1, 0));
  // If the inputs have been multiplied, the operation has already begun, so it goes on.
  if (!scaled && settings_.suspended.load()) return refused_suspended();
  if (!is_open()) HCCL_RETURN_IF_ERROR(open_for_all(envelope(call, sequence_ + 1, 0)));
  if (call.scale.before != 1 && !scaled) return execute_scaled(call);
  if (local_ != nullptr && local_timeout_ != settings_.timeout.load()) {
    local_timeout_ = settings_.timeout.load();
    local_->waits().set_timeout(local_timeout_);
  }
  const bool strict = settings_.deterministic.load() == Deterministic::kStrict && reduces(call.op);
  const std::uint64_t sequence = ++sequence_;
  if (!selection_.is_local(call.op)) return execute_remotely(call, sequence, strict);
  // The envelope contains `strict`, so that a difference between the ranks is detected.
  const Envelope envelope = hccl::envelope(call, sequence, strict ? 1 : 0);
  local_->begin(call, envelope);
  const std::uint64_t number = recorder_.begin(envelope, "local");
  Status status = local_->finish();
  const select::LocalChoice* const choice = local_->last_choice();
  recorder_.end(number, status.code(), choice == nullptr ? "local" : choice->algorithm->name,
                local_->quick());
  if (!status.ok()) {
    // If the only failure is that the kernel refused to copy, all ranks know of the refusal and no
    // longer use each other's buffers. So the communicator goes on.
    if (!selection_.lost_kernel_copies(*local_) || failure_.raised()) {
      return failure_.fail(std::move(status), envelope);
    }
    is_.log->error("{}: {}", is_.name, status.message());
    return status.with_context(is_.name);
  }
  selection_.ran(call, sequence, *choice);
  return {};
} catch (...) {
  return failure_.thrown();
}

Status Operations::execute_remotely(const Call& call, std::uint64_t sequence, bool strict) {
  const NotCancelled not_cancelled;
  const bool blocks = has_blocks(call.op);
  const schedule::Choice* const choice = blocks ? nullptr : &selection_.choose(call, strict);
  const std::uint64_t number =
      recorder_.begin(envelope(call, sequence, 0), blocks ? "direct" : choice->algorithm->name);
  Status status;
  if (blocks) {
    status = executor_->run_blocks(call, sequence, limits(call.background));
  } else if (two_level_ != nullptr && choice->algorithm->name == "two_level") {
    status = two_level_->run(call, sequence, limits(call.background));
    if (status.ok()) selection_.ran_between(call, *two_level_->between());
  } else {
    status = executor_->run(call, *choice, sequence, limits(call.background));
  }
  recorder_.end(number, status.code());
  return status.ok() ? status : failure_.fail(std::move(status), envelope(call, sequence, 0));
}

// Opens the group at its first operation, unless another rank's first operation has opened it.
Status Operations::open_for(const Envelope& call) {
  const NotCancelled not_cancelled;
  Waiter waiter = limits(false);
  // An opening on its own thread began earlier, but its error may come a little after its deadline.
  const auto timeout = settings_.timeout.load();
  if (timeout.count() != 0) waiter.deadline = Deadline::after(timeout + kEndAfterDeadline);
  waiter.policy = kSleepAtOnce;
  const auto open_here = [this] {
    recorder_.take_memory();
    return open_group();
  };
  const Opener::State state = opener_.open(open_here, waiter);
  if (state == Opener::State::kOpen || state == Opener::State::kPartly) return {};
  if (!failure_.raised()) {
    static_cast<void>(failure_.settle(
        Status(Code::kTimeout, "the communicator is not open: other ranks are late")));
  }
  return failure_.refuse(call).with_context(to_string(call));
}

// As open_for(), for a collective. If ranks are absent, reports the wait for them, as an open group
// does, so that the root's verdict tells what they have done.
Status Operations::open_for_all(const Envelope& call) {
  HCCL_RETURN_IF_ERROR(open_for(call));
  if (absent_.empty()) return {};
  const auto describe = [&] {
    WaitingCall pending{call.sequence, to_string(call), {}};
    for (const auto& [rank, why] : absent_) pending.late.push_back(rank);
    return pending;
  };
  Waiter waiter = limits(false);
  waiter.deadline = waiter.deadline.sooner(Deadline::after(kVerdictOnAbsent));
  Doorbell never;
  static_cast<void>(waiter.wait([] { return false; }, describe, never));
  return failure_.known(absent_.begin()->second, call);
}

// Rounds the products once, here, for every algorithm, so that the bits of strict mode do not
// depend on the algorithm.
Status Operations::execute_scaled(Call call) {
  const auto ranks = call.op == Op::kReduceScatter ? static_cast<std::uint64_t>(is_.size()) : 1;
  const std::uint64_t count = call.count * ranks;
  std::byte* products = static_cast<std::byte*>(call.out);
  if (call.op != Op::kAllReduce) {
    const std::size_t bytes = count * size_of(call.type);
    if (bytes > products_.size()) products_ = std::vector<std::byte>(bytes);
    products = products_.data();
  }
  kernels::multiply(call.type, call.scale.before, static_cast<const std::byte*>(call.in), products,
                    count);
  call.in = products;
  return execute(call, true);
}

Status Operations::exchange(std::span<exec::Transfer> transfers) {
  if (const WorkQueue::Turn turn(queue_); turn) return run_transfers(transfers);
  if (queue_.runs_here()) return refused_inside();
  return queue_.wait(queue_.defer([this, transfers] { return run_transfers(transfers); }));
}

Status Operations::exchange(std::span<exec::Transfer> transfers, const WorkQueue::Ticket& place) {
  return queue_.run(place, [this, transfers] { return run_transfers(transfers); });
}

Status Operations::run_transfers(std::span<exec::Transfer> transfers) try {
  if (transfers.empty()) return {};
  const NotCancelled not_cancelled;
  if (settings_.suspended.load() && !failure_.raised()) return refused_suspended();
  if (!is_open() && !failure_.raised()) {
    HCCL_RETURN_IF_ERROR(open_for(envelope(transfers.front())));
    for (const exec::Transfer& each : transfers) {
      if (const auto left = absent_.find(each.peer); left != absent_.end())
        return failure_.known(left->second, envelope(each));
    }
  }
  for (exec::Transfer& each : transfers) {
    each.sequence = ++(each.sending ? sends_ : recvs_)[static_cast<std::size_t>(each.peer)];
  }
  if (failure_.raised()) return failure_.refuse(envelope(transfers.front()));
  // Records only the first message of a batch.
  const std::uint64_t number =
      recorder_.begin(envelope(transfers.front()),
                      transfers.size() == 1 ? "point to point" : "point to point, batch");
  Waiter bounds = limits(false);
  bounds.stalled = [this](const WaitingCall& pending) {
    suspicion_.report(pending);
    for (const exec::Transfer* each : executor_->late_transfers()) stalled_in(*each, pending.call);
  };
  Status status = executor_->exchange(transfers, bounds);
  recorder_.end(number, status.code());
  return status.ok() ? status : failure_.fail(std::move(status));
} catch (...) {
  return failure_.thrown();
}

Status Operations::refused_suspended() const {
  return Status(Code::kSuspending,
                is_.name + " is suspended: resume it, then repeat the operation");
}

Status Operations::refused_inside() const {
  return Status(Code::kAgain,
                is_.name +
                    ": this thread is inside an earlier operation of the communicator. A signal "
                    "handler or a callback of the operation must not call it. If the program has "
                    "left the operation by longjmp, only HcclCommAbort helps");
}

WorkQueue::Bound Operations::bound() {
  WorkQueue::Bound bound;
  bound.patience = [this]() -> std::chrono::nanoseconds {
    if (failure_.raised()) return kEndAfterFailure;
    const auto timeout = settings_.timeout.load();
    return timeout.count() == 0 ? timeout : timeout + kEndAfterDeadline;
  };
  bound.overdue = [this] {
    failure_.abort(
        Status(Code::kTimeout,
               is_.name + ": rank " + std::to_string(is_.rank) +
                   ": an operation before this one does not begin or end, even at its "
                   "deadline. Either it waits for this one (its stream waits for a later "
                   "event, or HcclFusionWait comes later), or its thread has died, or "
                   "has left it by longjmp",
               is_.of_world(is_.rank)));
    return failure_.reason();
  };
  return bound;
}

// Limits how long a running call may hold up the submitted calls behind it. The limit counts the
// time of an operation inside the running call, or of a place that waits for its operation. It does
// not count the program's own code, which may take long. After a failure the whole running call
// counts.
WorkQueue::Bound Operations::bound_of_requests() {
  WorkQueue::Bound bound = this->bound();
  bound.of = [this] { return failure_.raised() ? requests_.get() : &queue_; };
  return bound;
}

Waiter Operations::limits(bool background) {
  Waiter limits;
  const auto timeout = settings_.timeout.load();
  limits.deadline = timeout.count() == 0 ? Deadline::never() : Deadline::after(timeout);
  limits.abort = &failure_.flag();
  limits.policy = background ? is_.placement.worker_policy : is_.placement.policy;
  if (is_.size() > 1) {
    limits.stalled = [this](const WaitingCall& pending) { stalled(pending); };
  }
  return limits;
}

void Operations::stalled(const WaitingCall& pending) {
  suspicion_.report(pending);
  std::vector<int> awaited = pending.late;
  for (int& peer : awaited) peer = is_.of_world(peer);
  is_.control->stalled(is_.id, pending.sequence, pending.call, awaited);
}

// Each ordered sequence of messages has its own scope. The scope depends on the pair of ranks, the
// direction, and on which of the two ranks waits. Its first half equals the first half of the
// communicator's id (see Failure).
Uuid Operations::scope_of(const exec::Transfer& message, bool receiver_waits) const {
  const auto me = static_cast<std::uint32_t>(is_.rank);
  const auto peer = static_cast<std::uint32_t>(message.peer);
  const std::uint32_t pair[] = {message.sending ? me : peer,
                                (message.sending ? peer : me) << 1 | (receiver_waits ? 1 : 0)};
  Uuid scope = is_.id;
  static_assert(sizeof pair == Failure::kScopeBytes);
  std::memcpy(scope.data() + scope.size() - sizeof pair, pair, sizeof pair);
  return scope;
}

void Operations::stalled_in(const exec::Transfer& message, const std::string& call) {
  is_.control->stalled(scope_of(message, !message.sending), message.sequence, call,
                       {is_.of_world(message.peer)});
}

void Operations::refused(const std::string& text) {
  in_order([this, text] { is_.control->refused(is_.id, sequence_ + 1, text); });
}

void Operations::refused(std::vector<exec::Transfer> messages, const std::string& text) {
  in_order([this, messages = std::move(messages), text] {
    for (const exec::Transfer& each : messages) {
      if (each.peer == is_.rank) continue;
      const auto& numbers = each.sending ? sends_ : recvs_;
      // Either of the two ranks may be the one that waits, so the refusal is reported in both
      // scopes. If both ranks have refused equally often, there is no error.
      for (const bool receiver_waits : {false, true}) {
        is_.control->refused(scope_of(each, receiver_waits),
                             numbers[static_cast<std::size_t>(each.peer)] + 1, text);
      }
    }
  });
}

// Runs `tell` after all operations that were issued earlier.
void Operations::in_order(std::function<void()> tell) {
  if (is_.size() == 1 || failure_.raised()) return;
  if (const WorkQueue::Turn turn(queue_); turn) {
    tell();
  } else {
    queue_.submit([tell = std::move(tell)] {
      tell();
      return Status();
    });
  }
}

}  // namespace hccl::core
