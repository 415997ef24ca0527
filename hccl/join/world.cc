#include "hccl/join/world.h"

#include <algorithm>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "hccl/control/wire.h"

namespace hccl::join {
namespace {

using control::Gatherings;
using control::RankSet;
using control::Relay;

// A rank waits this much longer than the control tree, so that the tree's errors, which have the
// reason, come first.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kLeaves{1};
constexpr std::uint64_t kOnce = 1;  // a key serves for one gathering

RankSet ranks_of(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return RankSet::range(0, static_cast<std::uint32_t>(size));
  return RankSet(std::vector<std::uint32_t>(ranks.begin(), ranks.end()));
}

// A rank's part of present(), still without the blob that says that the rank has come.
control::Gathering roll_call() {
  control::Gathering part;
  part.flags &= ~(control::kAwaitsAll | control::kMakesGroup);
  return part;
}

}  // namespace

World::World(std::shared_ptr<Node> node, int size, int rank, Logger log)
    : node_(std::move(node)), size_(size), rank_(rank), log_(std::move(log)) {}

World::~World() { node_->remove(*this); }

Result<std::shared_ptr<World>> World::join(std::shared_ptr<Node> node, int size, int rank,
                                           const Config& config, Logger log,
                                           const std::function<Status()>& check,
                                           const control::Attempt& attempt,
                                           const Result<std::string>& boot) {
  if (rank < 0 || rank >= size) {
    return Status(Code::kPara, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                   " ranks is impossible");
  }
  std::shared_ptr<World> world(new World(std::move(node), size, rank, std::move(log)));
  HCCL_RETURN_IF_ERROR(world->node_->add(
      *world, {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size), attempt}, config,
      world->log_, check, boot));
  HCCL_RETURN_IF_ERROR(world->await_roster(config));
  return world;
}

Status World::await_roster(const Config& config) {
  const auto decided = [this] {
    const MutexLock lock(mutex_);
    return roster_ != nullptr || dead_.has_value();
  };
  const Waiter waiter{.deadline = Deadline::after(2 * config.connect_timeout + kGrace),
                      .policy = kSleepAtOnce};
  const bool in_time = waiter.until(decided, bell_) == Waited::kReady;
  const MutexLock lock(mutex_);
  if (roster_ != nullptr) return {};
  return in_time ? *dead_ : Status(Code::kTimeout, "joining: no word from the root");
}

// ---- calls of the control thread ----

void World::joined(const std::shared_ptr<const control::Roster>& roster, std::uint32_t) {
  const MutexLock lock(mutex_);
  for (const std::uint32_t node : roster->node_of) {
    hosts_.push_back(roster->hosts[roster->nodes[node].host]);
  }
  roster_ = roster;
  bell_.ring();
}

void World::failed(const Status& why) {
  const MutexLock lock(mutex_);
  lose(why);
}

void World::over() {
  const MutexLock lock(mutex_);
  if (leaving_) return lose(Status(Code::kUnavail, "this rank has left"));
  lose(Status(Code::kRemote, "the other ranks have not heard from rank " + std::to_string(rank_) +
                                 " for so long that they take it for dead (HCCL_PEER_TIMEOUT)"));
}

void World::lose(const Status& why) {
  dead_ = why;
  while (!pending_.empty()) finish(pending_.begin()->first, why);
  if (!leaving_) {
    for (FailureListener* each : listeners_) each->on_failure(Uuid{}, why);
  }
  bell_.ring();
}

void World::heard(const control::News& news) {
  std::vector<std::pair<Uuid, RankSet>> in_vain;
  {
    const MutexLock lock(mutex_);
    if (roster_ == nullptr) return;  // this rank came too late to join
    static_cast<void>(news_.merge(news));
    for (const Uuid& scope : news.summons) {
      for (FailureListener* each : listeners_) each->on_summons(scope);
      if (const auto* members = not_coming_.find(scope)) in_vain.emplace_back(scope, *members);
    }
    for (const control::Verdict* verdict : news.in_order()) {
      for (FailureListener* each : listeners_) each->on_failure(verdict->scope, verdict->why);
      finish(verdict->scope, verdict->why);
    }
    RankSet left = news.left_ranks;  // after the verdicts, which take precedence
    for (const std::uint32_t node : news.left.ranks()) left |= roster_->nodes[node].ranks;
    for (const std::uint32_t rank : left.ranks()) {
      if (rank < left_.size()) left_[rank].store(true, std::memory_order_release);
    }
    bell_.ring();
  }
  for (const auto& [scope, members] : in_vain) say_part(scope, roll_call(), members);
}

void World::late(const Gatherings::Late& late) {
  const MutexLock lock(mutex_);
  const auto at = pending_.find(late.key.group);
  if (at == pending_.end()) return;
  const auto waits = Deadline::Clock::now() - at->second->since;
  log_->warn("{}: rank {} waits for rank{} {} in opening it, for {} s so far (world ranks)",
             at->second->name, rank_, late.awaited.count() == 1 ? "" : "s", late.awaited.text(),
             std::chrono::duration_cast<std::chrono::seconds>(waits).count());
}

void World::answered(const Gatherings::Answer& answer) {
  const MutexLock lock(mutex_);
  const auto at = pending_.find(answer.key.group);
  if (at == pending_.end()) return;
  using Sum = Result<control::Gathering>;
  finish(answer.key.group, answer.why.ok() ? Sum(answer.sum) : Sum(answer.why));
  if (answer.why.code() == Code::kRemote) {  // also for exchanges that have not begun
    for (FailureListener* each : listeners_) each->on_failure(answer.key.group, answer.why);
  }
  bell_.ring();
}

void World::finish(const Uuid& key, Result<control::Gathering> result) {
  const auto at = pending_.find(key);
  if (at == pending_.end()) return;
  at->second->result = std::move(result);
  at->second->done = true;
  pending_.erase(at);
}

// ---- calls of the rank ----

Result<World::Blobs> World::exchange(const Uuid& key, const std::string& mine, Deadline deadline,
                                     const AbortFlag& abort, const std::string& name,
                                     const std::vector<int>& members) {
  if (mine.size() > kBlobCap) return Status(Code::kInternal, "an exchange of too many bytes");
  control::Gathering part;
  part.flags &= ~control::kMakesGroup;
  part.blobs[static_cast<std::uint32_t>(rank_)] = mine;
  HCCL_ASSIGN_OR_RETURN(control::Gathering sum,
                        gather(key, std::move(part), members, name, deadline, &abort));
  return std::move(sum.blobs);
}

Result<std::vector<int>> World::present(const Uuid& key, const std::vector<int>& members,
                                        Deadline deadline, const AbortFlag& abort,
                                        const std::string& name) {
  control::Gathering part = roll_call();
  part.blobs[static_cast<std::uint32_t>(rank_)] = "here";
  HCCL_ASSIGN_OR_RETURN(const control::Gathering sum,
                        gather(key, std::move(part), members, name, deadline, &abort));
  std::vector<int> here;
  for (const int member : members) {
    if (sum.blobs.count(static_cast<std::uint32_t>(member)) != 0) here.push_back(member);
  }
  if (sum.blobs.count(static_cast<std::uint32_t>(rank_)) == 0) {
    return Status(Code::kUnavail, "this rank has told the others that it will not come");
  }
  return here;
}

Result<World::Agreed> World::agree(const Uuid& key, const std::vector<int>& members,
                                   const std::string& configuration, const std::string& offer,
                                   Deadline deadline, const AbortFlag& abort,
                                   const std::string& name) {
  if (offer.size() > kBlobCap) return Status(Code::kInternal, "an offer of too many bytes");
  control::Gathering part;
  if (!offer.empty()) part.blobs[static_cast<std::uint32_t>(rank_)] = offer;
  return agree(key, std::move(part), members, configuration, name, deadline, &abort);
}

Result<World::Agreed> World::survivors(const Uuid& key, const std::vector<int>& members,
                                       const std::string& configuration, Deadline deadline,
                                       const std::string& name) {
  control::Gathering part;
  part.flags &= ~control::kAwaitsAll;
  return agree(key, std::move(part), members, configuration, name, deadline, nullptr);
}

Result<World::Agreed> World::agree(const Uuid& key, control::Gathering part,
                                   const std::vector<int>& members,
                                   const std::string& configuration, const std::string& name,
                                   Deadline deadline, const AbortFlag* abort) {
  if (configuration.size() > control::kAgreementCap) {
    return Status(Code::kPara, "the configuration is too long: " + configuration);
  }
  const auto rank = static_cast<std::uint32_t>(rank_);
  part.agreement.add({rank, configuration});
  HCCL_ASSIGN_OR_RETURN(control::Gathering sum,
                        gather(key, std::move(part), members, name, deadline, abort));
  if (const auto& [first, other] = sum.agreement; other) {
    const auto& its = first->second != configuration ? *first : *other;
    return Status(Code::kPara, "the configurations differ: rank " + std::to_string(rank_) +
                                   " has " + configuration + ", rank " + std::to_string(its.first) +
                                   " has " + its.second + " (world ranks)");
  }
  Agreed agreed;
  for (const int member : members) {
    if (sum.arrived.contains(static_cast<std::uint32_t>(member))) agreed.members.push_back(member);
  }
  if (!sum.blobs.empty()) agreed.offer = std::move(sum.blobs.begin()->second);
  return agreed;
}

Result<control::Gathering> World::gather(const Uuid& key, control::Gathering part,
                                         const std::vector<int>& members, const std::string& name,
                                         Deadline deadline, const AbortFlag* abort) {
  auto pending = std::make_shared<Pending>();
  pending->name = name;
  {
    const MutexLock lock(mutex_);
    if (dead_) return *dead_;
    pending_[key] = pending;
  }
  const auto left = part.patience = deadline.left();
  say_part(key, std::move(part), ranks_of(members, size_));
  const auto ready = [&] {
    const MutexLock lock(mutex_);
    return pending->done;
  };
  // At the deadline the root's answer names the absent ranks: wait a little longer.
  const Waiter waiter{.deadline = left > std::chrono::hours(24) ? Deadline::never()
                                                                : Deadline::after(left + kGrace),
                      .abort = abort,
                      .policy = kSleepAtOnce};
  const bool answered = waiter.until(ready, bell_) == Waited::kReady;
  const MutexLock lock(mutex_);
  // A failure after the answer may be a consequence of the answer.
  if (!answered && !pending->done) {
    pending_.erase(key);
    if (abort != nullptr && abort->raised()) return abort->reason();
    return Status(Code::kTimeout, "the root does not answer");
  }
  return std::move(pending->result);
}

void World::say_part(const Uuid& key, control::Gathering part, const RankSet& members) {
  const auto rank = static_cast<std::uint32_t>(rank_);
  part.arrived = {rank};
  part.members.add({rank, members});
  node_->say([key, part = std::move(part)](Relay& relay, control::Time now) {
    return relay.gather({key, kOnce}, part, now);
  });
}

void World::report(const Uuid& scope, const Status& why) {
  try {
    node_->say([=, rank = static_cast<std::uint32_t>(rank_)](Relay& relay, control::Time now) {
      return relay.report(rank, scope, why, now);
    });
  } catch (...) {  // an unreported failure would let the others wait
    node_->fail(caught());
  }
  node_->await();
}

void World::stalled(const Uuid& scope, std::uint64_t sequence, const std::string& call,
                    const std::vector<int>& awaited) {
  control::Wait wait;
  wait.scope = scope;
  wait.number = sequence;
  wait.call = call.substr(0, control::kTextCap);
  const Key hash = digest(call);
  std::copy_n(hash.begin(), wait.digest.size(), wait.digest.begin());
  wait.waiting = {static_cast<std::uint32_t>(rank_)};
  wait.awaited = ranks_of(awaited, 0);
  node_->say([wait](Relay& relay, control::Time now) { return relay.waits(wait, now); });
}

void World::ended(const std::string& last) {
  node_->say([=, rank = static_cast<std::uint32_t>(rank_)](Relay& relay, control::Time now) {
    return relay.ends(rank, last, now);
  });
  node_->await();
}

void World::refused(const Uuid& scope, std::uint64_t sequence, const std::string& text) {
  node_->say([=, rank = static_cast<std::uint32_t>(rank_)](Relay& relay, control::Time now) {
    return relay.refused(rank, scope, sequence, text.substr(0, control::kTextCap), now);
  });
}

void World::summon(const Uuid& scope) {
  node_->say([scope](Relay& relay, control::Time now) { return relay.summon(scope, now); });
}

void World::will_not_come(const Uuid& scope, const std::vector<int>& members) noexcept try {
  const RankSet all = ranks_of(members, size_);
  {
    const MutexLock lock(mutex_);
    if (not_coming_.find(scope) != nullptr) return;
    not_coming_.put(scope, all);
    if (news_.summons.count(scope) == 0) return;
  }
  say_part(scope, roll_call(), all);
} catch (...) {  // NOLINT(bugprone-empty-catch): waiting ranks meet their deadline
}

bool World::is_lost() const {
  const MutexLock lock(mutex_);
  return dead_.has_value();
}

bool World::has_left(int rank) const {
  return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
}

void World::add(FailureListener* listener) {
  const MutexLock lock(mutex_);
  listeners_.insert(listener);
  for (const auto* each : news_.in_order()) listener->on_failure(each->scope, each->why);
  for (const Uuid& scope : news_.summons) listener->on_summons(scope);
  if (dead_) listener->on_failure(Uuid{}, *dead_);
}

void World::remove(FailureListener* listener) {
  const MutexLock lock(mutex_);
  listeners_.erase(listener);
}

void World::leave() {
  {
    const MutexLock lock(mutex_);
    leaving_ = true;
  }
  if (!node_->leave(*this)) return node_->await();  // the process stays in the world
  const auto gone = [this] {
    const MutexLock lock(mutex_);
    return dead_.has_value();
  };
  const Waiter waiter{.deadline = Deadline::after(2 * kLeaves), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(gone, bell_));
}

}  // namespace hccl::join
