#include "hccl/join/node.h"

#include <algorithm>
#include <utility>

#include "hccl/base/caught.h"
#include "hccl/base/socket.h"
#include "hccl/base/waiter.h"
#include "hccl/join/find_root.h"
#include "hccl/join/interfaces.h"

namespace hccl::join {
namespace {

constexpr std::chrono::seconds kGrace{5};  // added to the time for finding the root
constexpr std::chrono::seconds kLeaves{1};

Result<Listener> listen(RootInfo& info) {
  Result<Listener> listener(Status(Code::kUnavail, "no port"));
  for (int i = 0; i < info.ports; ++i) {
    const auto port = static_cast<std::uint16_t>(info.port == 0 ? 0 : info.port + i);
    listener = listen_tcp(info.address, port);
    if (listener.ok() || listener.status().code() != Code::kUnavail) break;
  }
  return listener;
}

Status too_late(std::uint32_t rank) {
  return {Code::kUnavail, "rank " + std::to_string(rank) + " came when joining was over"};
}

}  // namespace

Result<std::shared_ptr<Node>> Node::root(std::shared_ptr<Control> control, RootInfo& info,
                                         const Config& config, Logger log,
                                         control::Claimants claimants, Result<std::string> boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
  HCCL_ASSIGN_OR_RETURN(Listener listener, listen(info));
  info.port = listener.port;
  info.ports = 1;
  HCCL_ASSIGN_OR_RETURN(auto context, make_tls_context());
  HCCL_ASSIGN_OR_RETURN(Fd spare, Lines::open_spare());
  auto root = std::make_shared<Node>(std::move(control), info);
  root->patience_ = config.connect_timeout;
  {
    const MutexLock lock(root->mutex_);
    root->state_ = State::kOpen;
  }
  HCCL_ASSIGN_OR_RETURN(root->node_, root->control_->add([&](int epoll, std::uint64_t tags) {
    ControlNode::Args args{.own = own_part(info.address, info.port, {}, *boot),
                           .patience = config.connect_timeout,
                           .peer_timeout = config.peer_timeout,
                           .claimants = std::move(claimants)};
    auto lines = std::make_unique<Lines>(info, std::move(listener), std::move(context), epoll, tags,
                                         std::move(log), std::move(spare), strangers_cap());
    return std::make_unique<ControlNode>(std::move(args), std::move(lines),
                                         static_cast<Owner&>(*root));
  }));
  return root;
}

Node::~Node() { close(); }

void Node::close() {
  const Control::NodeId node = node_.exchange(0);
  if (node == 0) return;
  if (!failed_) control_->flush(node, kLeaves);
  control_->remove(node, failed_ ? patience_ : std::chrono::nanoseconds(0));
}

Status Node::add(Owner& owner, const Rank& rank, const Config& config, const Logger& log,
                 const std::function<Status()>& check, const Result<std::string>& boot) {
  bool first = false;
  {
    const MutexLock lock(mutex_);
    first = state_ == State::kNew;
    ranks_.push_back({rank.number, &owner, first});
    if (first) state_ = State::kOpening;
  }
  if (first) {
    const Status opened = guarded([&] { return open(rank, config, log, check, boot); });
    const MutexLock lock(mutex_);
    state_ = opened.ok() ? State::kOpen : State::kOver;
    bell_.ring();
    if (!opened.ok()) why_ = opened;
    return opened;
  }
  const auto opened = [this] {
    const MutexLock lock(mutex_);
    return state_ != State::kOpening;
  };
  const Waiter waiter{.deadline = Deadline::after(config.connect_timeout + kGrace),
                      .policy = kSleepAtOnce};
  if (waiter.until(opened, bell_) != Waited::kReady) {
    return {Code::kTimeout, "joining: another rank of this process still seeks the root"};
  }
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kOver) {
      return why_.ok() ? Status(Code::kUnavail, "the ranks of this process have left the world")
                       : why_;
    }
  }
  if (check) HCCL_RETURN_IF_ERROR(check());
  bring(owner, rank, config);
  return {};
}

Status Node::open(const Rank& rank, const Config& config, const Logger& log,
                  const std::function<Status()>& check, const Result<std::string>& boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
  HCCL_ASSIGN_OR_RETURN(const std::string from, source_address(config, info_.address));
  HCCL_ASSIGN_OR_RETURN(Line line,
                        find_root(info_, from, Deadline::after(config.connect_timeout), log));
  HCCL_ASSIGN_OR_RETURN(const Endpoint own, local_endpoint(line.fd()));
  HCCL_ASSIGN_OR_RETURN(const Endpoint root, peer_endpoint(line.fd()));
  {
    const MutexLock lock(mutex_);
    to_root_.emplace(std::move(line));
  }
  if (check) HCCL_RETURN_IF_ERROR(check());
  const Status sought =
      guarded([&] { return seek(own.address, root.port, rank, config, log, *boot); });
  if (!sought.ok()) cannot(rank.number, sought);
  return sought;
}

Status Node::seek(const std::string& address, std::uint16_t root_port, const Rank& rank,
                  const Config& config, const Logger& log, const std::string& boot) {
  HCCL_ASSIGN_OR_RETURN(Listener listener, listen_tcp(address, 0));
  HCCL_ASSIGN_OR_RETURN(auto context, make_tls_context());
  HCCL_ASSIGN_OR_RETURN(Fd spare, Lines::open_spare());
  HCCL_ASSIGN_OR_RETURN(node_, control_->add([&](int epoll, std::uint64_t tags) {
    const MutexLock lock(mutex_);
    ControlNode::Args args{
        .own = own_part(address, listener.port, {rank.number}, boot, rank.attempt),
        .size = rank.size,
        .agreement = config.agreement(),
        .root = control::Seek::Place{info_.address, root_port},
        .to_root = std::move(to_root_),
        .patience = config.connect_timeout,
        .peer_timeout = config.peer_timeout};
    to_root_.reset();
    auto lines = std::make_unique<Lines>(info_, std::move(listener), std::move(context), epoll,
                                         tags, log, std::move(spare));
    return std::make_unique<ControlNode>(std::move(args), std::move(lines),
                                         static_cast<Owner&>(*this));
  }));
  return {};
}

void Node::bring(const Owner& owner, const Rank& rank, const Config& config) {
  control_->post(node_, [its = &owner, rank, agreement = config.agreement()](ControlNode& node) {
    node.bring(its, rank.number, rank.size, agreement, rank.attempt);
  });
}

// Tells the root that this rank cannot join, so that the other ranks do not wait for it.
void Node::cannot(std::uint32_t rank, const Status& why) {
  const MutexLock lock(mutex_);
  if (!to_root_) return;
  to_root_->put(control::Seek::cannot(
      {why.code(), "rank " + std::to_string(rank) + ": " + why.message(), static_cast<int>(rank)}));
  static_cast<void>(to_root_->flush());
}

bool Node::leave(const Owner& owner) {
  bool last = false;
  std::uint32_t rank = 0;
  {
    const MutexLock lock(mutex_);
    Sharer& its = *std::ranges::find(ranks_, &owner, &Sharer::owner);
    its.left = true;
    rank = its.rank;
    last = std::ranges::all_of(ranks_, [](const Sharer& each) { return each.left; });
  }
  try {
    say([rank, last](control::Relay& relay, control::Time now) {
      return last ? relay.leave(now) : relay.rank_left(rank, now);
    });
  } catch (...) {  // the others do not know that the rank left, so remove() reports a death
    const MutexLock lock(mutex_);
    std::ranges::find(ranks_, &owner, &Sharer::owner)->left = false;
    throw;
  }
  return last;
}

void Node::remove(const Owner& owner) noexcept {
  Sharer its{};
  bool none = false;
  {
    const MutexLock lock(mutex_);
    const auto at = std::ranges::find(ranks_, &owner, &Sharer::owner);
    if (at == ranks_.end()) return;  // add() had no memory for the rank
    its = *at;
    ranks_.erase(at);
    none = ranks_.empty();
    if (none) state_ = State::kOver;
  }
  if (none) return close();
  if (!its.in || its.left) return;
  try {
    say([rank = its.rank](control::Relay& relay, control::Time now) {
      return relay.rank_died(rank, now);
    });
  } catch (...) {  // an unreported death would let the others wait forever
    fail(caught());
  }
}

void Node::say(std::function<control::Relay::Step(control::Relay&, control::Time)> what) {
  control_->post(node_, [what = std::move(what)](ControlNode& node) { node.say(what); });
}

bool Node::is_over() {
  const MutexLock lock(mutex_);
  return failed_ || state_ == State::kOver;
}

bool Node::finished() const {
  return std::chrono::steady_clock::now() >= over_at_.load(std::memory_order_acquire);
}

void Node::abandon() {
  if (to_root_) to_root_->abandon();
}

// ---- calls of the control thread ----

void Node::each(const std::function<void(Sharer&)>& tell) {
  const MutexLock lock(mutex_);
  for (Sharer& each : ranks_) tell(each);
}

void Node::joined(const std::shared_ptr<const control::Roster>& roster, std::uint32_t node) {
  roster_ = roster;
  number_ = node;
  others_ = control::RankSet::range(0, static_cast<std::uint32_t>(roster->nodes.size()));
  others_ -= {node};
  each([&](Sharer& its) {
    its.in = its.brought && roster->nodes[node].ranks.contains(its.rank);
    its.in ? its.owner->joined(roster, node) : its.owner->failed(too_late(its.rank));
  });
}

void Node::failed(const Status& why) {
  if (roster_ == nullptr) failed_ = true;
  over_at_ = std::chrono::steady_clock::now() + patience_;
  const MutexLock lock(mutex_);
  why_ = why;  // for ranks that come later
  for (Sharer& its : ranks_) its.owner->failed(why);
}

void Node::brought(const Owner* its) {
  each([&](Sharer& each) { each.brought = each.brought || each.owner == its; });
}

void Node::refused(const Owner* its, const Status& why) {
  each([&](Sharer& each) {
    if (each.owner == its) each.owner->failed(why.ok() ? too_late(each.rank) : why);
  });
}

// If the others consider this process dead, its ranks do not get the verdicts on their own deaths,
// because over() follows.
void Node::heard(const control::News& all) {
  others_ -= all.dead | all.left;
  if (others_.empty()) over_at_ = control::Time{};
  control::News news = all;
  if (all.dead.contains(number_)) {
    std::erase_if(news.verdicts, [this](const auto& each) {
      const auto& [scope, rank] = each.first;
      return scope == control::kEverything &&
             roster_->nodes[number_].ranks.contains(static_cast<std::uint32_t>(rank));
    });
  }
  each([&](Sharer& its) { its.owner->heard(news); });
}

void Node::answered(const control::Gatherings::Answer& answer) {
  each([&](Sharer& its) { its.owner->answered(answer); });
}

void Node::late(const control::Gatherings::Late& late) {
  each([&](Sharer& its) {
    if (late.arrived.contains(its.rank)) its.owner->late(late);
  });
}

void Node::over() {
  over_at_ = control::Time{};
  each([](Sharer& its) { its.owner->over(); });
}

}  // namespace hccl::join
