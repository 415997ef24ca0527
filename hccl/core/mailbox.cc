// Runs a mailbox's thread, serves its callers, and ends the mailbox. mailbox_wire.cc moves the
// messages.
#include "hccl/core/mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hccl/base/caught.h"
#include "hccl/core/suspicion.h"

namespace hccl::core {
namespace {

// The bytes that all peers together may send to a rank before the rank posts its receives. Each
// peer has an equal share, within the two limits below, so very many peers may send more.
constexpr std::uint64_t kEagerTotal = std::uint64_t{4} << 20;
constexpr std::uint64_t kLeastWindow = std::uint64_t{32} << 10;
constexpr std::uint64_t kMostWindow = std::uint64_t{512} << 10;
// The most turns of one poll().
constexpr int kTurns = 64;

std::uint64_t window_among(int size) {
  const auto peers = static_cast<std::uint64_t>(std::max(1, size - 1));
  return std::clamp(kEagerTotal / peers, kLeastWindow, kMostWindow);
}

}  // namespace

Status Message::wait(Deadline deadline) {
  Mailbox& box = *box_;
  const auto ready = [&] {
    if (done()) return true;
    if (box.mutex_.try_lock()) {
      MutexLock lock(box.mutex_, std::adopt_lock);
      box.poll(lock, this);
    }
    return done();
  };
  Suspicion suspicion(box.log_, box.name_, box.rank_);
  const Waiter waiter{
      .deadline = deadline,
      .policy = box.policy_,
      .stalled = [&suspicion](const WaitingCall& pending) { suspicion.report(pending); }};
  const auto describe = [this] {
    return WaitingCall{.call = to_string(),
                       .late = peer_ == kAnyRank ? std::vector<int>() : std::vector<int>{peer_}};
  };
  if (waiter.wait(ready, describe, box.bell_).ok()) return {};
  return Status(Code::kTimeout, box.name_ + ": timed out: " + to_string() + " is not done");
}

std::string Message::to_string() const {
  return "the message with tag " + std::to_string(tag_) +
         (sending_            ? " to rank " + std::to_string(peer_)
          : peer_ == kAnyRank ? std::string(" from any rank")
                              : " from rank " + std::to_string(peer_));
}

Mailbox::Mailbox(int rank, int size, std::string name, Open open, WaitPolicy policy, Logger log,
                 Broken broken, HasLeft has_left)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      policy_(policy),
      log_(std::move(log)),
      process_(::getpid()),
      window_(window_among(size)),
      open_(std::move(open)),
      broken_(std::move(broken)),
      has_left_(std::move(has_left)) {}

Mailbox::~Mailbox() { stop(); }

MessagePtr Mailbox::send(int dest, std::int32_t tag, const void* data, std::uint64_t bytes,
                         Message::Done done) {
  // The data is only read.
  return make(true, dest, tag, const_cast<void*>(data), bytes, std::move(done));
}

MessagePtr Mailbox::recv(int source, std::int32_t tag, void* data, std::uint64_t bytes,
                         Message::Done done) {
  return make(false, source, tag, data, bytes, std::move(done));
}

MessagePtr Mailbox::make(bool sending, int peer, std::int32_t tag, void* data, std::uint64_t bytes,
                         Message::Done done) {
  auto message = std::make_shared<Message>();
  message->box_ = shared_from_this();
  message->sending_ = sending;
  message->peer_ = peer;
  message->tag_ = tag;
  message->data_ = static_cast<std::byte*>(data);
  message->bytes_ = bytes;
  message->on_done_ = std::move(done);
  begin(message);
  return message;
}

void Mailbox::begin(const MessagePtr& message) {
  start();
  std::list<MessagePtr> place{message};
  message->place_ = place.begin();
  MutexLock lock(mutex_);
  live_.splice(live_.end(), place);
  try {
    post(message);
  } catch (...) {
    message->on_done_ = nullptr;
    give_up();
    fail_all();
    run_callbacks(lock);
    throw;
  }
  poll(lock);
}

void Mailbox::post(const MessagePtr& message) {
  if (ended_.raised()) {
    settle(message, ended_.reason());
  } else if (!message->sending_) {
    post_recv(message);
  } else if (mesh_ == nullptr && message->peer_ != rank_) {
    early_.push_back(message);
  } else {
    post_send(message);
  }
}

// Called in the handler of an exception. The state of messages is unknown after the exception, so
// the caller must fail all messages before the mutex is unlocked.
void Mailbox::give_up() noexcept {
  Status why = caught();
  try {
    why =
        Status(why.code(), name_ + ": rank " + std::to_string(rank_) + ": " + why.message(), rank_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the short text is enough
  }
  if (ended_.raise(why)) given_up_.store(true);
}

void Mailbox::start() {
  const MutexLock lock(mutex_);
  if (started_ || ended_.raised()) return;
  if (size_ > 1) {
    thread_ = Thread("hccl-messages", [this] { run(); });  // the thread first takes the mutex
    running_ = true;
  }
  started_ = true;
}

Status Mailbox::open() {
  HCCL_ASSIGN_OR_RETURN(OpenedMesh opened, open_(ended_));
  // All allocations come first, so that mesh_ is set only when all peers have a record.
  auto sleeper = std::make_unique<MailboxSleeper>(opened.mesh->sleeper(), mutex_);
  std::vector<std::unique_ptr<PeerRecord>> peers;
  for (int peer = 0; peer < size_; ++peer) {
    peers.push_back(std::make_unique<PeerRecord>());
    peers.back()->credit = window_;
  }
  MutexLock lock(mutex_);
  if (ended_.raised()) return ended_.reason();
  mesh_ = std::move(opened.mesh);
  sleeper_ = std::move(sleeper);
  peers_ = std::move(peers);
  try {
    for (const auto& [peer, why] : opened.absent) lost(peer, why, Deadline::after({}));
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !peers_[static_cast<std::size_t>(peer)]->gone) listen(peer);
    }
    for (const auto& [tag, list] : receives_) {
      for (const MessagePtr& each : list) expect(*each);
    }
    for (const MessagePtr& each : std::exchange(early_, {})) post_send(each);
    bell_.ring();
  } catch (...) {
    give_up();
    fail_all();
    throw;
  }
  poll(lock);
  return {};
}

// If this rank lacks memory, all messages of the communicator fail, on all ranks. Other ranks may
// have no link to this rank yet, so closing links is not enough to inform them. Therefore broken_
// tells the root, which informs all ranks. This happens before this rank's callers get the failure,
// because they may then leave the communicator.
void Mailbox::run() {
  try {
    serve();
  } catch (...) {
    give_up();
  }
  try {
    if (given_up_.load() && broken_) broken_(ended_.reason());
  } catch (...) {  // NOLINT(bugprone-empty-catch): the other ranks notice when this rank leaves
  }
  try {
    MutexLock lock(mutex_);
    running_ = false;
    bell_.ring();
    poll(lock);
  } catch (...) {  // NOLINT(bugprone-empty-catch): stop() tries again
  }
}

void Mailbox::serve() {
  if (const Status opened = open(); !opened.ok()) {
    ended_.raise(opened);
  } else {
    // Aborts and new data end a nap. A verdict's deadline does not end a nap, so naps are short.
    constexpr std::chrono::milliseconds kNap{250};
    const Waiter waiter{.policy = {.spin = std::chrono::nanoseconds(0), .longest_nap = kNap}};
    static_cast<void>(waiter.until(
        [this] {
          for (;;) {
            MutexLock lock(mutex_);
            const bool over = failed_;
            if (!poll(lock)) return over;
            sleeper_->moved();
          }
        },
        *sleeper_));
  }
}

void Mailbox::end(const Status& why) {
  ended_.raise(why);
  MutexLock lock(mutex_);
  if (mesh_ != nullptr) mesh_->abort(ended_.reason());
  if (sleeper_ != nullptr) sleeper_->ring();
  // If the thread runs, the thread calls the callbacks, because this caller may hold locks.
  if (!running_) poll(lock);
}

Opener::State Mailbox::end_opening(std::chrono::nanoseconds patience) {
  if (process_ != ::getpid()) return Opener::State::kFailed;
  // From then on start() does nothing, and open() fails.
  const Status over_now(Code::kUnavail, name_ + ": this rank has ended the communicator");
  {
    const MutexLock lock(mutex_);
    if (!started_) {
      ended_.raise(over_now);
      return Opener::State::kClosed;
    }
  }
  const auto over = [this] {
    const MutexLock lock(mutex_);
    return !running_ || mesh_ != nullptr || ended_.raised();
  };
  const Waiter waiter{.deadline = Deadline::after(patience), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(over, bell_));
  MutexLock lock(mutex_);
  if (mesh_ != nullptr) return Opener::State::kOpen;
  if (!running_ || ended_.raised()) return Opener::State::kFailed;
  ended_.raise(over_now);
  return Opener::State::kOpening;
}

void Mailbox::stop() {
  if (process_ != ::getpid()) {  // thread and links belong to the parent
    [[maybe_unused]] const auto* const mesh = mesh_.release();
    [[maybe_unused]] const auto* const sleeper = sleeper_.release();
    return;
  }
  try {
    end(Status(Code::kUnavail, name_ + ": the communicator has ended"));
  } catch (...) {
    ended_.raise(caught());
  }
  thread_.join();
  try {
    MutexLock lock(mutex_);
    poll(lock);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the remaining messages fail with the mailbox
  }
  const MutexLock lock(mutex_);
  sleeper_.reset();
  mesh_.reset();
  open_ = nullptr;
  has_left_ = nullptr;
}

// Bytes may keep moving for long, and the caller holds the mutex. So one call makes a limited
// number of turns, and stops when the mailbox ends. If there is more to do, the thread does it.
bool Mailbox::poll(MutexLock& lock, const Message* awaited) {
  int turns = 0;
  for (; turns < kTurns && move(); ++turns) run_callbacks(lock);
  try {
    fail_expired();
  } catch (...) {
    give_up();
  }
  if (ended_.raised()) fail_all();
  if (turns != 0 && sleeper_ != nullptr && !thread_.is_current()) {
    const bool again = awaited != nullptr && !awaited->done();
    if (turns == kTurns && !again) sleeper_->ring();
    if (!active_.empty()) sleeper_->begun();
  }
  run_callbacks(lock);
  return turns != 0;
}

bool Mailbox::move() noexcept {
  try {
    const bool can_move = mesh_ != nullptr && !failed_ && !ended_.raised();
    return can_move && (mesh_->progress() | advance());
  } catch (...) {
    give_up();
    return false;
  }
}

// Only one thread at a time runs callbacks. A callback may post messages that are done at once; the
// loop runs their callbacks, too.
void Mailbox::run_callbacks(MutexLock& lock) {
  if (settled_.empty()) return;
  bell_.ring();
  if (calling_back_) return;
  calling_back_ = true;
  while (!settled_.empty()) {
    const std::list<MessagePtr> told = std::exchange(settled_, {});
    lock.unlock();
    for (const MessagePtr& each : told) {
      if (each->on_done_) std::exchange(each->on_done_, nullptr)(each->status_);
    }
    lock.lock();
  }
  calling_back_ = false;
}

void Mailbox::settle(const MessagePtr& message, Status status) noexcept {
  if (message->done()) return;
  message->status_ = std::move(status);
  message->done_.store(true, std::memory_order_release);
  settled_.splice(settled_.end(), live_, message->place_);
}

// Transfers may still use callers' memory, so first the mesh ends the transfers. After that,
// nothing is allocated. After an exception, the results of the transfers are unknown, so they are
// not read.
void Mailbox::fail_all() {
  if (failed_) return;
  const Status why = ended_.reason();
  if (mesh_ != nullptr) {
    mesh_->abort(why);
    while (mesh_->progress()) {
    }
  }
  failed_ = true;
  early_.clear();
  active_.clear();
  receives_.clear();
  arrivals_.clear();
  asking_.clear();
  delayed_failures_.clear();
  while (!live_.empty()) settle(live_.front(), why);
  if (sleeper_ != nullptr) sleeper_->ring();  // wakes the thread, which then ends
}

// A link may have closed because another rank died. Until the deadline `verdict` the root may name
// that rank, which ends the mailbox. If the root names no rank, the peer itself has left, and the
// message fails with `why`. If the peer has left the world, the message fails at once, because the
// root reports a verdict before it reports that the peer has left. The peer may have left because
// of that verdict, so a mailbox that has ended fails its messages with the verdict.
void Mailbox::fail_later(const MessagePtr& message, const Status& why, Deadline verdict) {
  delayed_failures_.push_back({message, why, verdict});
}

void Mailbox::fail_expired() {
  std::erase_if(delayed_failures_, [this](const DelayedFailure& each) HCCL_REQUIRES(mutex_) {
    const int peer = each.why.culprit();
    const bool left = has_left_ && peer >= 0 && peer < size_ && has_left_(peer);
    if ((!left && !each.verdict.expired()) || ended_.raised()) return false;
    settle(each.message, each.why);
    return true;
  });
}

}  // namespace hccl::core
