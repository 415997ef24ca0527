#include "hccl/join/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hccl/base/error_text.h"

namespace hccl::join {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSteps = 4;         // steps of handshakes in one turn
constexpr milliseconds kSure{100};        // a stranger is not dropped for this long
constexpr milliseconds kSureNamed{1000};  // the same for a stranger that has named the job
constexpr milliseconds kShort{1000};      // a lack of descriptors counts after this time
constexpr Lines::LineId kKnock = 0;       // the listener's tag

}  // namespace

Lines::Lines(RootInfo key, Listener listener, std::shared_ptr<const TlsContext> context, int epoll,
             std::uint64_t tags, Logger log, Fd spare, std::size_t strangers)
    : key_(std::move(key)),
      listener_(std::move(listener)),
      context_(std::move(context)),
      epoll_(epoll),
      tags_(tags),
      log_(std::move(log)),
      spare_(std::move(spare)),
      cap_(strangers) {
  hear_knocks(true);
}

Result<Fd> Lines::open_spare() {
  Fd spare(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!spare.valid()) return syscall_failure("open /dev/null");
  return spare;
}

Lines::~Lines() { close_all(); }

// Takes each descriptor out of the epoll set: if a forked child has a copy, closing alone would
// leave the descriptor in the set.
void Lines::close_all() {
  hear_knocks(false);
  listener_.fd.reset();
  while (!connections_.empty()) erase(connections_.begin()->first);
  ready_.clear();
  events_.clear();
}

void Lines::watch(LineId id, Connection& connection, std::uint32_t events) {
  if (connection.watched == events) return;
  const int fd = connection.line ? connection.line->fd() : connection.fd.get();
  const int operation = events == 0               ? EPOLL_CTL_DEL
                        : connection.watched == 0 ? EPOLL_CTL_ADD
                                                  : EPOLL_CTL_MOD;
  watch_fd(epoll_, operation, fd, events, tag_of(id));
  connection.watched = events;
}

void Lines::erase(LineId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  watch(id, at->second, 0);
  strangers_.erase(id);
  connections_.erase(at);
}

void Lines::hear_knocks(bool on) {
  if (hears_knocks_ == on) return;
  watch_fd(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.fd.get(), EPOLLIN, tag_of(kKnock));
  hears_knocks_ = on;
}

// ---- lines that this node opens ----

Lines::LineId Lines::dial(const std::string& address, std::uint16_t port, Time now) {
  const LineId id = ++last_;
  int error = 0;
  auto fd = start_connect_tcp(address, port, "", &error);
  if (!fd.ok()) {
    events_.push_back({What::kFailed, id, fd.status().message(), error == ECONNREFUSED});
    return id;
  }
  Connection& connection = connections_[id];
  connection.fd = std::move(*fd);
  connection.dialed = true;
  connection.since = now;
  watch(id, connection, EPOLLOUT);
  return id;
}

Lines::LineId Lines::add(Line line) {
  const LineId id = ++last_;
  Connection& connection = connections_[id];
  connection.line.emplace(std::move(line));
  connection.open = true;
  watch(id, connection, EPOLLIN);
  ready_[id] |= EPOLLIN;  // TLS may have read bytes beyond the proof
  return id;
}

void Lines::connect(LineId id, Connection& connection) {
  const int error = connect_error(connection.fd.get());
  if (error != 0) return fail(id, error_text(error), error == ECONNREFUSED);
  watch(id, connection, 0);
  connection.line.emplace(std::move(connection.fd), Line::Side::kClient, context_, key_);
  prove(id, connection);
}

// A dial has failed, or an established line has ended.
void Lines::fail(LineId id, const std::string& why, bool gone) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  const bool tells = at->second.open ? !at->second.closing : at->second.dialed;
  const What what = at->second.open ? What::kClosed : What::kFailed;
  erase(id);
  if (tells) events_.push_back({what, id, why, gone});
}

// ---- strangers ----

// The earliest time at which a stranger may be accepted, if necessary in place of another one.
Lines::Time Lines::room_at() const {
  if (strangers_.size() < cap_) return Time{};
  Time first = Time::max();
  for (const LineId id : strangers_) {
    const Connection& each = connections_.at(id);
    const bool named = each.line->named();
    first = std::min<Time>(first, each.since + (named ? kSureNamed : kSure));
  }
  return first;
}

bool Lines::drop_stranger(Time now) {
  for (const bool named : {false, true}) {
    for (const LineId id : strangers_) {
      const Connection& each = connections_.at(id);
      if (each.line->named() != named || now < each.since + (named ? kSureNamed : kSure)) continue;
      fail(id, "dropped for a newer connection");
      return true;
    }
  }
  return false;
}

void Lines::accept_some(Time now) {
  for (std::size_t i = 0; i < kSteps; ++i) {
    if (strangers_.size() >= cap_ && !drop_stranger(now)) break;
    auto fd = accept_one(listener_.fd.get());
    if (!fd.ok() && drop_stranger(now)) fd = accept_one(listener_.fd.get());
    if (!fd.ok()) return turn_away(fd.status(), now);
    if (!fd->valid()) return;
    why_short_ = {};
    const LineId id = ++last_;
    Connection& connection = connections_[id];
    connection.line.emplace(std::move(*fd), Line::Side::kServer, context_, key_);
    connection.since = now;
    strangers_.insert(id);
    watch(id, connection, EPOLLIN);
  }
}

// No descriptor is free: accepts with the spare descriptor and closes the connection. The caller
// tries again.
void Lines::turn_away(const Status& why, Time now) {
  if (why_short_.ok()) {
    log_->warn("control: {}", why.message());
    short_since_ = now;
  }
  why_short_ = why;
  const bool had = spare_.valid();
  spare_.reset();
  static_cast<void>(accept_one(listener_.fd.get()));
  if (!had) return;
  if (auto again = open_spare(); again.ok()) spare_ = std::move(*again);
}

Status Lines::lacks(Time now) const { return now >= short_since_ + kShort ? why_short_ : Status(); }

void Lines::prove(LineId id, Connection& connection) {
  const Status status = connection.line->prove();
  if (!status.ok()) {
    if (!connection.dialed && status.code() != Code::kTcpTransfer) {
      log_->warn("control: turned a stranger away: {}", status.message());
    }
    return fail(id, status.message());
  }
  if (!connection.line->proved()) {
    const bool writes = connection.line->wants() == POLLOUT;
    return watch(id, connection, writes ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
  strangers_.erase(id);
  connection.open = true;
  if (connection.dialed) events_.push_back({What::kOpened, id, {}});
  watch(id, connection, EPOLLIN);
  read(id, connection);
}

// ---- established lines ----

void Lines::read(LineId id, Connection& connection) {
  for (;;) {
    const auto got = connection.line->fill();
    if (!got.ok()) return fail(id, got.status().message());
    for (;;) {
      auto frame = connection.line->next(kFrameCap);
      if (!frame.ok()) return fail(id, frame.status().message());
      if (!frame->has_value()) break;
      if (!connection.closing) events_.push_back({What::kFrame, id, std::move(**frame)});
    }
    if (*got == 0) return;
  }
}

void Lines::send(LineId id, std::string_view frame) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || !at->second.open || at->second.closing) return;
  Connection& connection = at->second;
  if (connection.deaf) return;
  connection.queued += frame.size();
  if (connection.queued > kQueueCap) return fail(id, "the other end does not read");
  connection.line->put(frame);
  flush(id, connection);
}

void Lines::close(LineId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  at->second.closing = true;
  flush(id, at->second);
}

// The other end may have sent frames and then closed the line: these frames are still read.
void Lines::flush(LineId id, Connection& connection) {
  if (!connection.deaf && connection.open) {
    const Status sent = connection.line->flush();
    if (!sent.ok()) {
      connection.deaf = true;
      ::shutdown(connection.line->fd(), SHUT_RDWR);
    }
    if (!connection.line->unsent()) connection.queued = 0;
  }
  const bool waits = !connection.deaf && connection.open && connection.line->unsent();
  if (connection.closing && !waits) return erase(id);
  watch(id, connection, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// ---- turns ----

void Lines::ready(std::uint64_t tag, std::uint32_t events) {
  ready_[static_cast<LineId>(tag - tags_)] |= events;
}

// A connection that is not served in this turn stays ready in the epoll set.
std::vector<Lines::Event> Lines::turn(Time now) {
  std::size_t steps = kSteps;
  for (const bool open : {true, false}) {
    for (const auto& [id, events] : ready_) {
      const auto at = connections_.find(id);
      if (at == connections_.end() || at->second.open != open) continue;
      Connection& connection = at->second;
      if (!open && steps-- == 0) break;
      if (connection.fd.valid()) {
        connect(id, connection);
      } else if (!open) {
        prove(id, connection);
      } else {
        if ((events & EPOLLOUT) != 0) flush(id, connection);
        if ((events & ~EPOLLOUT) != 0 && connections_.count(id) != 0) read(id, connection);
      }
    }
  }
  if (ready_.contains(kKnock)) accept_some(now);
  ready_.clear();
  hear_knocks(room_at() <= now);
  expire(now);
  return std::exchange(events_, {});
}

Lines::Time Lines::ends(const Connection& connection) {
  if (connection.open) return Time::max();
  return connection.since + (connection.dialed ? kDialTime : kProofTime);
}

void Lines::expire(Time now) {
  std::vector<LineId> over;
  for (const auto& [id, connection] : connections_) {
    if (now >= ends(connection)) over.push_back(id);
  }
  for (const LineId id : over) fail(id, "no answer");
}

Lines::Time Lines::next() const {
  if (!events_.empty()) return Time{};  // at once
  Time first = hears_knocks_ ? Time::max() : room_at();
  for (const auto& [id, connection] : connections_) first = std::min(first, ends(connection));
  return first;
}

bool Lines::unsent() const {
  return std::ranges::any_of(connections_, [](const auto& each) {
    return each.second.open && !each.second.deaf && each.second.line->unsent();
  });
}

void Lines::abandon() {
  for (auto& [id, connection] : connections_) {
    connection.fd.reset();
    if (connection.line) connection.line->abandon();
  }
  listener_.fd.reset();
}

}  // namespace hccl::join
