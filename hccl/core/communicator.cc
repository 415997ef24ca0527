// Makes and ends communicators.
#include "hccl/core/communicator.h"

#include <algorithm>

#include "hccl/base/caught.h"
#include "transport/doors.h"
#include "transport/registry.h"

namespace hccl::core {
namespace {

// If all ranks are present, connections open within this time, also if many ranks share few cores.
std::chrono::milliseconds opens_in(int ranks) {
  return std::chrono::seconds(1) + ranks * std::chrono::milliseconds(20);
}

/// Returns the status of the exception that is being handled. The text names this rank if there is
/// memory for the name.
Status caught_by(int rank, int world_rank) noexcept {
  Status why = caught();
  try {
    return {why.code(), "rank " + std::to_string(rank) + ": " + why.message(), world_rank};
  } catch (...) {
    return why;
  }
}

}  // namespace

Communicator::Communicator(Membership is, const Selection* parent)
    : is_(std::move(is)),
      failure_(is_),
      settings_(is_.config),
      opening_(is_, failure_),
      mailbox_(std::make_shared<Mailbox>(
          rank(), size(), is_.name,
          [this](const AbortFlag& abort) { return opening_.mailbox(abort); }, is_.placement.policy,
          is_.log,
          [this](const Status& why) {
            failure_.abort(Status(why.code(), why.message(), is_.of_world(rank())));
          },
          [this](int peer) { return is_.control->has_left(is_.of_world(peer)); })),
      operations_(is_, settings_, opening_, failure_, parent) {}

Result<std::shared_ptr<Communicator>> Communicator::world(
    std::shared_ptr<join::World> control, std::string name, const Config& config, Logger log,
    std::shared_ptr<transport::Siblings> siblings, std::shared_ptr<memory::Heap> heap) {
  std::vector<int> ranks(static_cast<std::size_t>(control->size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  const int rank = control->rank();
  const Uuid id = identity(control->info().id, "world");
  std::shared_ptr<Communicator> made(new Communicator(
      {std::move(control), std::move(name), std::move(ranks), rank, id, config, std::move(log),
       std::move(heap), std::make_shared<transport::Doors>(), std::move(siblings)},
      nullptr));
  HCCL_RETURN_IF_ERROR(made->meet(config.connect_timeout));
  HCCL_RETURN_IF_ERROR(made->operations_.open(Deadline::after(config.connect_timeout)));
  return made;
}

Result<std::shared_ptr<Communicator>> Communicator::group(
    std::string name, const std::vector<int>& ranks, std::uint64_t instance, const Config* config,
    std::chrono::nanoseconds patience, bool own_name) const {
  std::vector<int> world_ranks;
  std::string what =
      "group " + (own_name ? std::string() : name) + " #" + std::to_string(instance) + ":";
  int rank = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == is_.rank) rank = static_cast<int>(i);
    world_ranks.push_back(is_.of_world(ranks[i]));
    what += " " + std::to_string(world_ranks.back());
  }
  const Uuid id = identity(is_.id, what);
  const Config& its = config != nullptr ? *config : is_.config;
  std::shared_ptr<Communicator> made;
  try {
    made.reset(new Communicator({is_.control, std::move(name), std::move(world_ranks), rank, id,
                                 its, is_.log, is_.heap, is_.doors, is_.siblings},
                                &operations_.selection()));
  } catch (...) {  // tell the ranks that wait for this rank
    is_.control->report(id, caught_by(is_.rank, is_.control->rank()));
    throw;
  }
  if (patience.count() == 0) patience = its.connect_timeout;
  HCCL_RETURN_IF_ERROR(made->meet(patience));
  // Below MPI_THREAD_MULTIPLE all ranks must open their communicators in one order.
  if (transport::is_plugin(its.transport)) {
    HCCL_RETURN_IF_ERROR(made->operations_.open(Deadline::after(its.connect_timeout)));
  }
  return made;
}

// The root's answer alone decides the members, and all living ranks get the same answer. So no rank
// gets the new communicator while another rank must try again. listen() receives failures that
// happen after the answer.
Result<std::shared_ptr<Communicator>> Communicator::shrink(std::string name,
                                                           const std::vector<int>& kept,
                                                           std::uint64_t number,
                                                           const Config* config) const {
  const Config& its = config != nullptr ? *config : is_.config;
  const Uuid id = identity(is_.id, "shrink #" + std::to_string(number));
  std::vector<int> members;
  for (const int rank : kept) members.push_back(is_.of_world(rank));
  auto agreed = is_.control->survivors(id, members, its.agreement(),
                                       Deadline::after(its.connect_timeout), name);
  if (!agreed.ok()) return agreed.status().with_context(name);
  std::vector<int> ranks = std::move(agreed->members);
  const auto mine = std::ranges::find(ranks, is_.control->rank()) - ranks.begin();
  try {
    std::shared_ptr<Communicator> made(
        new Communicator({is_.control, std::move(name), std::move(ranks), static_cast<int>(mine),
                          id, its, is_.log, is_.heap, is_.doors, is_.siblings, true},
                         &operations_.selection()));
    made->failure_.listen();
    made->hear_summons();
    is_.control->stay();
    return made;
  } catch (...) {  // tell the ranks that wait for this rank
    is_.control->report(id, caught_by(static_cast<int>(mine), is_.control->rank()));
    throw;
  }
}

Status Communicator::meet(std::chrono::nanoseconds patience) try {
  failure_.listen();
  HCCL_RETURN_IF_ERROR(
      opening_.compare_configurations(operations_.selection(), Deadline::after(patience)));
  hear_summons();
  return {};
} catch (...) {
  return failure_.thrown();
}

void Communicator::hear_summons() {
  failure_.summons_with([this] { operations_.open_aside(); },
                        [this] {
                          try {
                            mailbox_->start();
                          } catch (...) {
                            static_cast<void>(failure_.settle_thrown());
                          }
                        },
                        [this](const Status& why) { mailbox_->end(why); });
}

void Communicator::abort(const std::string& reason) {
  failure_.abort(guarded([&] {
    return Status(Code::kUnavail, is_.name + ": rank " + std::to_string(is_.rank) +
                                      " aborted the communicator" +
                                      (reason.empty() ? "" : ": " + reason));
  }));
}

// Ends all parts even if there is no memory for an error text.
Communicator::~Communicator() {
  operations_.requests()->end(false);
  Status over;
  try {
    end_opening();
    over = Status(Code::kUnavail, is_.name + ": the communicator was destroyed");
    mailbox_->end(over);
  } catch (...) {
    if (over.ok()) over = caught();
  }
  failure_.stop_listening();
  mailbox_->stop();
  operations_.abort(std::move(over));
}

// Ranks that open connections, now or later, must not wait for this rank.
void Communicator::end_opening() {
  const auto why = [this](const char* what) {
    return Status(Code::kRemote,
                  is_.name + ": rank " + std::to_string(is_.rank) +
                      " ended the communicator while it opened connections for " + what,
                  is_.of_world(is_.rank));
  };
  switch (mailbox_->end_opening(opens_in(size()))) {
    case Opener::State::kClosed:
      is_.control->will_not_come(messages_of(is_.id), is_.ranks);
      break;
    case Opener::State::kOpening:
      is_.control->report(messages_of(is_.id), why("messages"));
      break;
    default:
      break;
  }
  switch (operations_.end_opening(opens_in(size()))) {
    case Opener::State::kClosed:
      is_.control->will_not_come(operations_of(is_.id), is_.ranks);
      break;
    case Opener::State::kOpening:
      failure_.abort(why("operations"));
      break;
    default:
      break;
  }
}

void Communicator::leave() try {
  if (!is_.has_groups())
    return operations_.refused({});  // a rank that leaves a group stays in the world
  const bool last = is_.control->goes();
  end_opening();
  if (!last) return operations_.refused({});
  is_.control->leave();
} catch (...) {  // tell the ranks that wait for this rank
  static_cast<void>(failure_.thrown());
  throw;
}

void Communicator::end_of_program() {
  if (size() == 1 || !is_.has_groups() || failure_.raised()) return;
  is_.control->ended(operations_.queue().busy() ? "an unfinished operation"
                                                : failure_.recorder().last());
}

void Communicator::refused_group(const std::string& text) {
  if (size() > 1) is_.control->refused_group(text);
}

}  // namespace hccl::core
