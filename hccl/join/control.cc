#include "hccl/join/control.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"

namespace hccl::join {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEvents = 64;   // in one turn
constexpr int kTagBits = 32;  // of a node's own tags
constexpr WaitPolicy kSleepUntilDue{.spin = std::chrono::nanoseconds(0),
                                    .longest_nap = std::chrono::hours(1)};
constexpr WaitPolicy kLookAgain{.spin = std::chrono::nanoseconds(0),
                                .longest_nap = std::chrono::milliseconds(2)};

template <class Do>
void guarded(ControlNode& node, Do&& what) noexcept {
  try {
    what();
  } catch (...) {
    node.fail(caught());
  }
}

}  // namespace

Result<std::shared_ptr<Control>> Control::create() {
  HCCL_ASSIGN_OR_RETURN(auto sleeper, EpollSleeper::create());
  return std::shared_ptr<Control>(new Control(std::move(sleeper)));
}

Control::~Control() {
  stopping_.store(true, std::memory_order_release);
  ring();
  thread_.join();
}

void Control::ring() {
  rung_.store(true, std::memory_order_release);
  sleeper_->ring();
}

Control::NodeId Control::add(const Make& make) {
  const NodeId id = ++last_;
  const MutexLock lock(turn_);
  nodes_[id].node = make(sleeper_->epoll(), std::uint64_t{id} << kTagBits);
  if (!thread_.started()) thread_ = Thread("hccl-control", [this] { run(); });
  ring();
  return id;
}

void Control::post(NodeId node, std::function<void(ControlNode&)> what) {
  {
    const MutexLock lock(box_mutex_);
    box_.emplace_back(node, std::move(what));
  }
  ring();
}

void Control::remove(NodeId node, std::chrono::nanoseconds lingers) {
  const MutexLock lock(turn_);
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return;
  at->second.node->detach();
  at->second.lingers = lingers.count() != 0;
  at->second.ends = Clock::now() + std::max<std::chrono::nanoseconds>(lingers, kLastWords);
  ring();
}

void Control::flush(NodeId node, std::chrono::nanoseconds at_most) {
  const auto heeded = [&] {
    const MutexLock lock(turn_);
    const auto at = nodes_.find(node);
    if (at == nodes_.end()) return true;
    const MutexLock box(box_mutex_);
    return box_.empty() && at->second.node->is_heeded();
  };
  Doorbell nothing_rings;
  const Waiter waiter{.deadline = Deadline::after(at_most), .policy = kLookAgain};
  static_cast<void>(waiter.until(heeded, nothing_rings));
}

void Control::run() {
  const auto due = [this] {
    pollfd events{sleeper_->epoll(), POLLIN, 0};
    return rung_.exchange(false, std::memory_order_acquire) || ::poll(&events, 1, 0) > 0;
  };
  while (!stopping_.load(std::memory_order_acquire)) {
    control::Time next;
    {
      const MutexLock lock(turn_);
      serve();
      next = this->next();
    }
    const Waiter waiter{.deadline = Deadline::at(next), .policy = kSleepUntilDue};
    static_cast<void>(waiter.until(due, *sleeper_));
  }
  const MutexLock lock(turn_);
  nodes_.clear();
  crypto_leaves_thread();
}

void Control::serve() {
  epoll_event events[kEvents];
  const int number = ::epoll_wait(sleeper_->epoll(), events, kEvents, 0);
  for (int i = 0; i < number; ++i) {
    const std::uint64_t tag = events[i].data.u64;
    if (tag == EpollSleeper::kWake) sleeper_->awake();
    if (tag == EpollSleeper::kWake) continue;
    const auto at = nodes_.find(static_cast<NodeId>(tag >> kTagBits));
    if (at != nodes_.end()) at->second.node->lines().ready(tag, events[i].events);
  }
  std::vector<std::pair<NodeId, std::function<void(ControlNode&)>>> box;
  {
    const MutexLock lock(box_mutex_);
    box.swap(box_);
  }
  for (const auto& [id, what] : box) {
    const auto at = nodes_.find(id);
    if (at == nodes_.end()) continue;
    ControlNode& node = *at->second.node;
    guarded(node, [&node, &doing = what] { doing(node); });
  }
  const auto now = Clock::now();
  for (auto& [id, entry] : nodes_) guarded(*entry.node, [&entry = entry] { entry.node->turn(); });
  std::erase_if(nodes_, [now](const auto& each) {
    const auto& [node, ends, lingers] = each.second;
    if (ends == control::Time::max()) return false;
    return now >= ends || (!lingers && !node->lines().unsent());
  });
}

control::Time Control::next() const {
  control::Time first = control::Time::max();
  for (const auto& [id, entry] : nodes_) {
    first = std::min({first, entry.ends, entry.node->next()});
  }
  return first;
}

void Control::abandon() {
  for (auto& [id, entry] : nodes_) entry.node->abandon();
}

}  // namespace hccl::join
