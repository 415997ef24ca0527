#include "transport/tcp/door.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "transport/doors.h"

namespace hccl::transport::tcp {
namespace {

// The time that a connection has for its proof and its hello.
constexpr std::chrono::seconds kProofTime{5};
// A connection that has sent nothing for this long probably belongs to a stranger.
constexpr std::chrono::milliseconds kSilence{100};
// A connection without a hello after this time gives way to a newer one if there is no room
// for both. A rank that loses its place so dials again.
constexpr std::chrono::milliseconds kSlow{300};
constexpr std::uint64_t kListener = EpollSleeper::kWake - 1;

}  // namespace

Result<std::shared_ptr<Door>> Door::open(const std::string& address) {
  HCCL_ASSIGN_OR_RETURN(std::unique_ptr<EpollSleeper> sleeper, EpollSleeper::create());
  HCCL_ASSIGN_OR_RETURN(Listener listener, listen_tcp(address, 0));
  return std::shared_ptr<Door>(new Door(std::move(listener), std::move(sleeper)));
}

Door::Door(Listener listener, std::unique_ptr<EpollSleeper> sleeper)
    : listener_(std::move(listener)),
      sleeper_(std::move(sleeper)),
      thread_("hccl-door", [this] { run(); }) {}

Door::~Door() {
  over_.raise(closes_);
  sleeper_->ring();
}

void Door::admit(std::shared_ptr<Inbox> inbox) {
  const MutexLock lock(mutex_);
  const Uuid id = inbox->id();
  inboxes_[id] = std::move(inbox);
}

void Door::dismiss(Inbox& inbox) {
  inbox.close();
  const MutexLock lock(mutex_);
  inboxes_.erase(inbox.id());
}

std::shared_ptr<Inbox> Door::find(const Uuid& id) {
  const MutexLock lock(mutex_);
  const auto at = inboxes_.find(id);
  return at == inboxes_.end() ? nullptr : at->second;
}

Result<std::shared_ptr<const TlsContext>> Door::context() {
  if (tls_ == nullptr) {
    HCCL_ASSIGN_OR_RETURN(tls_, make_tls_context());
  }
  return tls_;
}

void Door::run() {
  watch_listener(true);
  while (!over_.raised()) {
    const bool timed = !visitors_.empty() || !listening_;
    const Waiter waiter{.timeout = timed ? kLackPause : std::chrono::nanoseconds(0),
                        .abort = &over_,
                        .policy = {.spin = std::chrono::nanoseconds(0),
                                   .longest_nap = std::chrono::milliseconds(500)}};
    try {
      static_cast<void>(waiter.until([this] { return turn(); }, *sleeper_));
      expire();
    } catch (...) {  // no memory: drops all visitors; they dial again
      visitors_.clear();
    }
  }
  visitors_.clear();
  crypto_leaves_thread();
}

/// Handles all ready sockets. Returns whether there were any.
bool Door::turn() {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(sleeper_->epoll(), events.data(), static_cast<int>(events.size()), 0);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag == EpollSleeper::kWake) continue;
    any = true;
    if (tag == kListener) {
      accept_all();
      continue;
    }
    // The visitor of an event may have been dropped in this round.
    const auto entry = std::find_if(visitors_.begin(), visitors_.end(), [&](const Visitor& each) {
      return each.pending.fd() == static_cast<int>(tag);
    });
    if (entry != visitors_.end()) step(entry);
  }
  return any;
}

void Door::watch_listener(bool on) {
  watch_fd(sleeper_->epoll(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.fd.get(), EPOLLIN,
           kListener);
  listening_ = on;
}

void Door::watch(PendingConnection& pending) {
  pending.watch(sleeper_->epoll(), static_cast<std::uint64_t>(pending.fd()));
}

void Door::accept_all() {
  for (;;) {
    if (visitors_.size() >= strangers_cap() && !make_room()) return rest();
    auto fd = accept_one(listener_.fd.get());
    if (!fd.ok()) {
      // Probably no descriptor is free. If there is no stranger to drop, other threads may free
      // some.
      if (make_room()) continue;
      if (!lack_) lack_ = Deadline::after(kLackTime);
      if (lack_->expired()) {
        const MutexLock lock(mutex_);
        for (const auto& [id, inbox] : inboxes_) inbox->lacks(fd.status());
      }
      return rest();
    }
    if (!fd->valid()) return;
    lack_.reset();
    visitors_.emplace_back(
        std::move(*fd), [this](const Uuid& id) { return find(id); }, [this] { return context(); },
        Deadline::after(kProofTime));
    watch(visitors_.back().pending);
  }
}

/// Accepts nothing for a moment.
void Door::rest() {
  watch_listener(false);
  listen_again_ = Deadline::after(kLackPause);
}

/// Drops the oldest connection that probably belongs to a stranger: one that is silent, or slow.
/// Returns false if there is none.
bool Door::make_room() {
  const auto age = [](const Visitor& each) { return kProofTime - each.deadline.left(); };
  auto stranger = std::find_if(visitors_.begin(), visitors_.end(), [&](Visitor& each) {
    return !each.pending.has_spoken() && age(each) > kSilence;
  });
  if (stranger == visitors_.end() && !visitors_.empty() && age(visitors_.front()) > kSlow) {
    stranger = visitors_.begin();
  }
  if (stranger == visitors_.end()) return false;
  drop(stranger);
  return true;
}

void Door::drop(Entry entry) {
  ::epoll_ctl(sleeper_->epoll(), EPOLL_CTL_DEL, entry->pending.fd(), nullptr);
  visitors_.erase(entry);
}

void Door::expire() {
  while (!visitors_.empty() && visitors_.front().deadline.expired()) drop(visitors_.begin());
  if (!listening_ && listen_again_.expired()) watch_listener(true);
}

void Door::step(Entry entry) {
  PendingConnection& pending = entry->pending;
  if (!pending.advance().ok()) return drop(entry);
  if (pending.greeted()) return greet(entry);
  watch(pending);
}

void Door::greet(Entry entry) {
  PendingConnection& pending = entry->pending;
  Inbox& inbox = *pending.inbox();
  const Hello hello = pending.hello();
  const auto self = static_cast<std::uint32_t>(inbox.rank());
  if (hello.magic != kMagic || hello.version != kVersion || hello.to != self ||
      hello.from == self || hello.from >= inbox.ranks()) {
    return drop(entry);
  }
  const int peer = static_cast<int>(hello.from);
  const Answer answer = inbox.offer(peer);
  try {
    const Status told = pending.answer({kMagic, kVersion, self, hello.from, answer});
    if (answer != Answer::kWelcome) return drop(entry);
    ::epoll_ctl(sleeper_->epoll(), EPOLL_CTL_DEL, pending.fd(), nullptr);
    inbox.deliver({peer, told.ok() ? pending.take() : Connection()});
  } catch (...) {  // lets the peer connect again
    if (answer == Answer::kWelcome) inbox.deliver({peer, Connection()});
    throw;
  }
  visitors_.erase(entry);
}

}  // namespace hccl::transport::tcp

namespace hccl::transport {

Result<std::shared_ptr<tcp::Door>> Doors::at(const std::string& address) {
  const MutexLock lock(mutex_);
  std::shared_ptr<tcp::Door> door = door_.lock();
  if (door == nullptr) {
    HCCL_ASSIGN_OR_RETURN(door, tcp::Door::open(address));
    door_ = door;
  }
  return door;
}

}  // namespace hccl::transport
