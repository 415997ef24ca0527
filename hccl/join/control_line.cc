#include "hccl/join/control_line.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hccl::join {
namespace {

using wire::Kind;

constexpr std::chrono::seconds kSendTime{10};
constexpr std::chrono::seconds kAcknowledgeTime{1};

std::string list_of(ByteReader& in, std::uint32_t number) {
  std::string list;
  for (std::uint32_t i = 0; i < number; ++i) {
    if (i == 64) return list + ", … (" + std::to_string(number) + " in all)";
    list += (i == 0 ? "" : ", ") + std::to_string(in.get<std::uint32_t>());
  }
  return list;
}

}  // namespace

ControlLine::ControlLine(Line line, const RootInfo& info, int rank,
                         std::chrono::nanoseconds peer_timeout, Logger log)
    : line_(std::move(line)),
      info_(info),
      rank_(rank),
      peer_timeout_(peer_timeout),
      log_(std::move(log)) {}

ControlLine::~ControlLine() {
  if (thread_.started()) await_coordinator();
  ::shutdown(line_.fd(), SHUT_RDWR);  // ends the thread's wait
  thread_.join();
}

// If the coordinator runs in this process, it ends with the process. So this rank waits until the
// coordinator has read all reports of this rank and closes the line. Otherwise the other ranks
// would learn only that the coordinator has ended.
void ControlLine::await_coordinator() {
  if (coordinator_rank_ < 0) return;
  const wire::Member& its = members_[static_cast<std::size_t>(coordinator_rank_)];
  const bool here = its.host == members_[static_cast<std::size_t>(rank_)].host &&
                    its.pid == static_cast<std::uint32_t>(::getpid());
  if (!here) return;
  {
    const MutexLock lock(mutex_);
    if (leaving_) return;
  }
  ::shutdown(line_.fd(), SHUT_WR);  // the coordinator closes a line that it has read to the end
  static_cast<void>(wait_fd(line_.fd(), POLLRDHUP, Deadline::after(kAcknowledgeTime)));
}

Status ControlLine::send(const wire::Frame& frame, Deadline deadline) {
  const MutexLock in_order(send_mutex_);
  for (bool first = true;; first = false) {
    {
      const MutexLock lock(line_mutex_);
      if (first) line_.put(frame);
      HCCL_RETURN_IF_ERROR(line_.flush());
      if (!line_.unsent()) return {};
    }
    HCCL_RETURN_IF_ERROR(wait_fd(line_.fd(), POLLOUT, deadline));
  }
}

void ControlLine::send(const wire::Frame& frame) {
  // A failure here means that the coordinator has gone; the reading thread reports that.
  const Status sent = send(frame, Deadline::after(kSendTime));
  if (!sent.ok()) log_->debug("control: {}", sent.message());
}

// Before the thread runs.
Result<std::string> ControlLine::receive(Deadline deadline) {
  for (;;) {
    HCCL_ASSIGN_OR_RETURN(auto frame, line_.next(wire::kReplyCap));
    if (frame) return std::move(*frame);
    HCCL_ASSIGN_OR_RETURN(const std::size_t got, line_.fill());
    if (got == 0) HCCL_RETURN_IF_ERROR(wait_fd(line_.fd(), POLLIN, deadline));
  }
}

// Handles all that has arrived, because poll does not know which bytes the line has read already.
// kAgain if nothing has arrived. Only this thread reads, so next() needs no lock.
Status ControlLine::take_in() {
  for (bool some = false;; some = true) {
    for (;;) {
      HCCL_ASSIGN_OR_RETURN(const auto frame, line_.next(wire::kReplyCap));
      if (!frame) break;
      handle(*frame);
    }
    const MutexLock lock(line_mutex_);
    HCCL_ASSIGN_OR_RETURN(const std::size_t got, line_.fill());
    if (got == 0) return some ? Status() : Status(Code::kAgain, "nothing has arrived");
  }
}

void ControlLine::listen() {
  using Clock = Deadline::Clock;
  const std::chrono::nanoseconds interval = wire::beat_interval(peer_timeout_);
  // Time in which this thread did not run does not count as the coordinator's silence.
  std::chrono::nanoseconds silence{0};
  Clock::time_point looked = Clock::now();
  Deadline next_beat = Deadline::after(interval);
  for (;;) {
    // Reads the arrived bytes before it judges silence: this process itself may have been stopped.
    const Status read = take_in();
    const auto now = Clock::now();
    silence += std::min<std::chrono::nanoseconds>(now - std::exchange(looked, now), 2 * interval);
    if (read.ok()) silence = {};
    if (!read.ok() && read.code() != Code::kAgain) return lost(read);
    if (silence >= peer_timeout_) return lost(Status(Code::kTimeout, "silence"));
    if (next_beat.expired()) {
      send(ByteWriter().put(Kind::kBeat).take());
      next_beat = Deadline::after(interval);
    }
    static_cast<void>(wait_fd(line_.fd(), POLLIN, next_beat));
  }
}

void ControlLine::lost(const Status& why) {
  const MutexLock lock(mutex_);
  const bool left = coordinator_rank_ >= 0 && left_.count(coordinator_rank_) != 0;
  std::string who = "the root";
  if (coordinator_rank_ >= 0) {
    const auto& member = members_[static_cast<std::size_t>(coordinator_rank_)];
    who = "rank " + std::to_string(coordinator_rank_) + " (" + member.address + " pid " +
          std::to_string(member.pid) + ")";
  }
  std::string text = who + " died or was cut off";
  const bool own = coordinator_rank_ == rank_;
  if (own) {  // this rank is alive
    text = who + " was cut off from the coordinator in its own process";
    who = "the coordinator in the process of " + who;
  }
  const bool taken = why.code() == Code::kSyscall;  // the line's descriptor, by the program
  if (left && !own) {
    text = who +
           " has destroyed its communicator, and the coordinator in its process has ended: the "
           "other ranks can open no more communicators";
  } else if (why.code() == Code::kTimeout) {
    text = who + " has given no sign of life (HCCL_PEER_TIMEOUT): it is stopped, or cut off";
  } else if (why.code() == Code::kRemote || taken) {
    text =
        "the control line of rank " + std::to_string(rank_) + " to " + who + ": " + why.message();
  }
  dead_ = Status(Code::kRemote, text, taken ? rank_ : own ? Status::kNobody : coordinator_rank_);
  finish_all(*dead_);
  if (!leaving_ && !left) {
    for (FailureListener* each : listeners_) each->on_failure(Uuid{}, *dead_);
  }
  bell_.ring();
}

// Without this thread the rank receives nothing more. The other ranks learn that its line has
// ended.
void ControlLine::fail(const Status& why) noexcept {
  ::shutdown(line_.fd(), SHUT_RDWR);
  const MutexLock lock(mutex_);
  dead_ = why;
  try {
    finish_all(why);
    for (FailureListener* each : listeners_) each->on_failure(Uuid{}, why);
  } catch (...) {  // NOLINT(bugprone-empty-catch): those that are left hear of it when they ask
  }
  bell_.ring();
}

void ControlLine::finish_all(const Status& why) {
  for (auto& [key, pending] : pending_) {
    pending->result = why;
    pending->done = true;
  }
  pending_.clear();
}

void ControlLine::handle(const std::string& frame) {
  ByteReader in(frame);
  const auto kind = in.get<Kind>();
  if (kind == Kind::kSummons) return summoned(in.get<Uuid>());
  const MutexLock lock(mutex_);
  if (kind == Kind::kFailure) {
    const auto scope = in.get<Uuid>();
    const Status why = wire::get_status(in);
    if (scope == Uuid{}) deaths_.push_back(why);
    for (FailureListener* each : listeners_) each->on_failure(scope, why);
    if (const auto at = pending_.find(scope); at != pending_.end()) {
      at->second->result = why;
      at->second->done = true;
      pending_.erase(at);
    }
  } else if (kind == Kind::kLeave) {
    const auto rank = static_cast<int>(in.get<std::uint32_t>());
    left_.insert(rank);
  } else if (kind == Kind::kAwaited) {
    say_awaited(in);
  } else if (kind == Kind::kExchange) {
    const auto key = in.get<Uuid>();
    const auto absent = in.get<std::uint32_t>();
    const auto at = pending_.find(key);
    if (at == pending_.end()) return;
    if (absent != 0) {
      at->second->result =
          Status(Code::kTimeout, "ranks that did not come: " + list_of(in, absent));
    } else {
      const auto number = in.get<std::uint32_t>();
      std::vector<std::string> parts;
      for (std::uint32_t i = 0; i < number && in.ok(); ++i)
        parts.push_back(in.get_text(wire::kBlobCap));
      if (in.finished() && number == at->second->size) {
        at->second->result = std::move(parts);
      } else {
        at->second->result =
            Status(Code::kInternal, "the root sent other parts than those asked for");
      }
    }
    at->second->done = true;
    pending_.erase(at);
  }
  bell_.ring();
}

void ControlLine::summoned(const Uuid& scope) {
  {
    const MutexLock lock(mutex_);
    for (FailureListener* each : listeners_) each->on_summons(scope);
    if (not_coming_.count(scope) == 0) return;
  }
  absent(scope);
}

void ControlLine::say_awaited(ByteReader& in) const {
  const auto at = pending_.find(in.get<Uuid>());
  if (at == pending_.end()) return;
  const Pending& pending = *at->second;
  const auto number = in.get<std::uint32_t>();
  log_->warn(
      "{}: rank {} waits for rank{} {} in opening it, for {} s so far", pending.name, pending.index,
      number == 1 ? "" : "s", list_of(in, number),
      std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - pending.since)
          .count());
}

Result<std::vector<std::string>> ControlLine::exchange(const Uuid& key, std::uint32_t size,
                                                       std::uint32_t index, const std::string& mine,
                                                       Deadline deadline, const AbortFlag& abort,
                                                       std::string name, const std::string& members,
                                                       bool makes_group,
                                                       const std::function<void()>& waits) {
  if (mine.size() > wire::kBlobCap) return Status(Code::kInternal, "an exchange of too many bytes");
  auto pending = std::make_shared<Pending>();
  pending->name = std::move(name);
  pending->index = index;
  pending->size = size;
  {
    const MutexLock lock(mutex_);
    if (dead_) return *dead_;
    pending_[key] = pending;
  }
  ByteWriter out;
  out.put(Kind::kExchange).put(key).put(size).put(index);
  out.put(static_cast<std::uint64_t>(deadline.left().count())).put_text(mine).put_text(members);
  out.put(static_cast<std::uint8_t>(makes_group));
  send(out.bytes());
  const auto ready = [&] {
    const MutexLock lock(mutex_);
    return pending->done;
  };
  // At the deadline the coordinator sends a frame that names the absent ranks: wait kGrace longer.
  const auto left = deadline.left();
  const Deadline patience =
      left > std::chrono::hours(24) ? Deadline::never() : Deadline::after(left + kGrace);
  Waiter waiter{.deadline = patience, .abort = &abort, .policy = kSleepAtOnce};
  if (waits) waiter.stalled = [&waits](const hccl::WaitingCall&) { waits(); };
  const Status waited = waiter.wait(ready, [] { return hccl::WaitingCall(); }, bell_);
  const MutexLock lock(mutex_);
  // A failure after the answer may be a consequence of the answer.
  if (!waited.ok() && !pending->done) {
    pending_.erase(key);
    if (abort.raised()) return abort.reason();
    return Status(Code::kTimeout, "the root does not answer");
  }
  return std::move(pending->result);
}

void ControlLine::report(const Uuid& scope, const Status& why) {
  send(wire::failure_frame(scope, why));
}

void ControlLine::stalled(const Uuid& scope, std::uint64_t sequence, const std::string& call,
                          const std::vector<int>& awaited) {
  ByteWriter out;
  out.put(Kind::kStall).put(scope).put(sequence);
  out.put_text(std::string_view(call).substr(0, wire::kTextCap));
  const std::size_t number = std::min(awaited.size(), wire::kAwaitedCap);
  out.put(static_cast<std::uint32_t>(number));
  for (std::size_t i = 0; i < number; ++i) out.put(static_cast<std::uint32_t>(awaited[i]));
  send(out.bytes());
}

void ControlLine::refused(const Uuid& scope, std::uint64_t sequence, const std::string& text) {
  ByteWriter out;
  out.put(Kind::kRefusal).put(scope).put(sequence);
  out.put_text(std::string_view(text).substr(0, wire::kTextCap));
  send(out.bytes());
}

void ControlLine::ended(const std::string& last) {
  ByteWriter out;
  send(out.put(Kind::kEnd).put_text(std::string_view(last).substr(0, wire::kTextCap)).take());
}

void ControlLine::summon(const Uuid& scope) {
  send(ByteWriter().put(Kind::kSummons).put(scope).take());
}

void ControlLine::absent(const Uuid& messages) {
  const wire::Member& me = members_[static_cast<std::size_t>(rank_)];
  report(messages, Status(Code::kRemote,
                          "rank " + std::to_string(rank_) + " (" + me.address + " pid " +
                              std::to_string(me.pid) +
                              ") has destroyed the communicator in which another rank opens "
                              "connections for messages (world ranks)",
                          rank_));
}

void ControlLine::will_not_come(const Uuid& messages) noexcept {
  const MutexLock lock(mutex_);
  try {
    if (not_coming_.size() >= wire::kScopesCap) not_coming_.clear();
    not_coming_.insert(messages);
  } catch (...) {  // NOLINT(bugprone-empty-catch): those that wait meet their deadline
  }
}

bool ControlLine::is_lost() const {
  const MutexLock lock(mutex_);
  return dead_.has_value();
}

bool ControlLine::has_left(int rank) const {
  const MutexLock lock(mutex_);
  return left_.count(rank) != 0;
}

void ControlLine::add(FailureListener* listener) {
  const MutexLock lock(mutex_);
  listeners_.insert(listener);
  for (const Status& death : deaths_) listener->on_failure(Uuid{}, death);
  if (dead_) listener->on_failure(Uuid{}, *dead_);
}

void ControlLine::remove(FailureListener* listener) {
  const MutexLock lock(mutex_);
  listeners_.erase(listener);
}

bool ControlLine::others_left() const {
  if (dead_) return true;
  const auto& me = members_[static_cast<std::size_t>(rank_)];
  return std::all_of(members_.begin(), members_.end(),
                     [&](const wire::Member& member) HCCL_REQUIRES(mutex_) {
                       // Ranks of this process may wait for the caller's thread.
                       return (member.pid == me.pid && member.host == me.host) ||
                              left_.count(static_cast<int>(member.rank)) != 0;
                     });
}

void ControlLine::leave(std::chrono::nanoseconds at_most) {
  {
    const MutexLock lock(mutex_);
    leaving_ = true;
  }
  send(ByteWriter().put(Kind::kLeave).take());
  // If a socket is closed with unread bytes in it, the bytes that it has still to send are lost. So
  // the coordinator must acknowledge the leave first.
  const auto acknowledged = [this] {
    const MutexLock lock(mutex_);
    return dead_ || left_.count(rank_) != 0;
  };
  const auto alone = [this] {
    const MutexLock lock(mutex_);
    return others_left();
  };
  Waiter waiter{.deadline = Deadline::after(kAcknowledgeTime), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(acknowledged, bell_));
  waiter.deadline = Deadline::after(at_most);
  static_cast<void>(waiter.until(alone, bell_));
}

}  // namespace hccl::join
