#include "hccl/join/control.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"

namespace hccl::join {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEvents = 64;   // events in one turn
constexpr int kTagBits = 32;  // bits for a node's own tags
// Naps are short, because the program may have closed the descriptor that wakes the thread.
constexpr WaitPolicy kSleepUntilDue{.spin = std::chrono::nanoseconds(0),
                                    .longest_nap = std::chrono::seconds(1)};
constexpr const char* kClosed = "the program has closed a descriptor of the library";

// An exception is a failure of the node alone.
template <class Do>
void run_for(ControlNode& node, Do&& what) noexcept {
  try {
    what();
  } catch (...) {
    node.fail(caught());
  }
}

}  // namespace

Control::~Control() {
  stopping_.store(true, std::memory_order_seq_cst);
  if (sleeper_) ring();
  thread_.join();
}

Status Control::begin() {
  if (ended()) return {Code::kSyscall, kClosed};
  if (!sleeper_) {
    HCCL_ASSIGN_OR_RETURN(sleeper_, EpollSleeper::create());
  }
  if (resting_.exchange(false)) thread_.join();
  if (!thread_.started()) thread_ = Thread("hccl-control", [this] { run(); });
  return {};
}

void Control::ring() {
  rung_.store(true, std::memory_order_seq_cst);
  sleeper_->ring();
}

// Starts the thread first, because a node without a thread would hold its sockets open and never
// answer.
Result<Control::NodeId> Control::add(const Make& make) {
  const NodeId id = ++last_;
  const MutexLock lock(turn_);
  HCCL_RETURN_IF_ERROR(begin());
  auto node = make(sleeper_->epoll(), std::uint64_t{id} << kTagBits);
  nodes_[id].node = std::move(node);
  ring();
  return id;
}

void Control::post(NodeId node, std::function<void(ControlNode&)> what) {
  if (ended()) return;
  {
    const MutexLock lock(box_mutex_);
    box_.emplace_back(node, std::move(what));
    ++posted_;
  }
  ring();
}

void Control::fail(NodeId node, const Status& why) noexcept {
  const bool in_turn = its_.load(std::memory_order_acquire) == std::this_thread::get_id();
  if (!in_turn) turn_.lock();
  const auto at = nodes_.find(node);
  if (at != nodes_.end()) at->second.node->fail(why);
  if (!in_turn) turn_.unlock();
}

void Control::await() {
  if (its_.load(std::memory_order_acquire) == std::this_thread::get_id()) return;
  std::uint64_t mine = 0;
  {
    const MutexLock lock(box_mutex_);
    mine = posted_;
  }
  const auto done = [&] {
    return ended() || resting_ || done_.load(std::memory_order_acquire) >= mine;
  };
  const Waiter waiter{.deadline = Deadline::after(kLastWords), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(done, turned_));
}

void Control::remove(NodeId node, std::chrono::nanoseconds lingers) {
  const MutexLock lock(turn_);
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return;
  if (ended()) {
    nodes_.erase(at);
    return;
  }
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
  const Waiter waiter{.deadline = Deadline::after(at_most), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(heeded, turned_));
}

void Control::run() {
  its_.store(std::this_thread::get_id(), std::memory_order_release);
  bool rests = false;
  const Status why = guarded([&] { return work(rests); });
  its_.store({}, std::memory_order_release);
  if (rests) return crypto_leaves_thread();  // takes no lock, because begin() may wait for this
  const MutexLock lock(turn_);
  for (auto& [id, entry] : nodes_) {
    if (!why.ok()) entry.node->fail(why);
  }
  ended_.store(true, std::memory_order_release);
  turned_.ring();
  if (why.ok()) nodes_.clear();
  crypto_leaves_thread();
}

// Sets `rests` if there has been no node for a while.
Status Control::work(bool& rests) {
  const auto due = [this] {
    pollfd events{sleeper_->epoll(), POLLIN, 0};
    return rung_.load(std::memory_order_acquire) || ::poll(&events, 1, 0) > 0;
  };
  auto rests_at = control::Time::max();
  for (;;) {
    rung_.store(false, std::memory_order_seq_cst);  // before the checks, so that no ring is lost
    if (stopping_.load(std::memory_order_seq_cst)) return {};
    control::Time next;
    {
      const MutexLock lock(turn_);
      HCCL_RETURN_IF_ERROR(serve());
      if (!nodes_.empty()) {
        rests_at = control::Time::max();
      } else if (rests_at == control::Time::max()) {
        rests_at = Clock::now() + kLastWords;
      } else if (Clock::now() >= rests_at) {
        rests = true;
        resting_ = true;
        turned_.ring();
        return {};
      }
      next = std::min(this->next(), rests_at);
    }
    turned_.ring();
    const Waiter waiter{.deadline = Deadline::at(next), .policy = kSleepUntilDue};
    static_cast<void>(waiter.until(due, *sleeper_));
  }
}

Status Control::serve() {
  epoll_event events[kEvents];
  const int number = ::epoll_wait(sleeper_->epoll(), events, kEvents, 0);
  if (number < 0 && errno != EINTR) return {Code::kSyscall, kClosed};
  for (int i = 0; i < number; ++i) {
    const std::uint64_t tag = events[i].data.u64;
    if (tag == EpollSleeper::kWake) sleeper_->awake();
    if (tag == EpollSleeper::kWake) continue;
    const auto at = nodes_.find(static_cast<NodeId>(tag >> kTagBits));
    if (at == nodes_.end()) continue;
    at->second.node->lines().ready(tag, events[i].events);
    at->second.due = {};
  }
  std::vector<Post> box;
  std::uint64_t posted = 0;
  {
    const MutexLock lock(box_mutex_);
    box.swap(box_);
    posted = posted_;
  }
  for (const auto& [id, what] : box) {
    const auto at = nodes_.find(id);
    if (at == nodes_.end()) continue;
    ControlNode& node = *at->second.node;
    run_for(node, [&node, &doing = what] { doing(node); });
    at->second.due = {};
  }
  done_.store(posted, std::memory_order_release);
  const auto now = Clock::now();
  for (auto& [id, entry] : nodes_) {
    if (now < entry.due) continue;
    run_for(*entry.node, [&entry = entry] { entry.node->turn(); });
    entry.due = entry.node->next();
  }
  std::erase_if(nodes_, [now](const auto& each) {
    const Entry& entry = each.second;
    if (entry.ends == control::Time::max()) return false;
    return now >= entry.ends || (!entry.lingers && !entry.node->lines().unsent());
  });
  return {};
}

control::Time Control::next() const {
  control::Time first = control::Time::max();
  for (const auto& [id, entry] : nodes_) first = std::min({first, entry.ends, entry.due});
  return first;
}

void Control::abandon() {
  for (auto& [id, entry] : nodes_) entry.node->abandon();
}

}  // namespace hccl::join
