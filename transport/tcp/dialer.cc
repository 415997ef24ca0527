#include "transport/tcp/dialer.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "hccl/base/error_text.h"
#include "hccl/base/socket.h"

namespace hccl::transport::tcp {
namespace {

// Pause before a failed try is repeated. During the pause the peer's own connection is accepted.
constexpr std::chrono::milliseconds kPause{20};
// The first try waits this long for the peer's kernel. After a try without an answer, the next one
// waits twice as long.
constexpr std::chrono::seconds kPatience{1};
// A peer that refuses for this long counts as ended. The wait leaves time for a failure report
// about the peer, which explains more.
constexpr std::chrono::seconds kRefusalTime{1};
// The same for a peer that accepts connections and closes them: a crowded door does that, too.
constexpr std::chrono::seconds kClosedTime{5};

}  // namespace

Dialer::Dialer(std::shared_ptr<Inbox> inbox, std::string from, std::vector<Endpoint> peers,
               std::shared_ptr<const TlsContext> tls, std::chrono::nanoseconds time, int epoll)
    : inbox_(std::move(inbox)),
      from_(std::move(from)),
      peers_(std::move(peers)),
      tls_(std::move(tls)),
      time_(time),
      epoll_(epoll) {}

std::string Dialer::where(int peer) const {
  const Endpoint& to = peers_[static_cast<std::size_t>(peer)];
  return "rank " + std::to_string(peer) + " at " + endpoint_text(to.address, to.port);
}

void Dialer::call(int peer) {
  const auto [at, fresh] = calls_.try_emplace(peer);
  if (!fresh) return;
  at->second.end = Deadline::after(time_);
  at->second.patience = kPatience;
  try_once(peer, at->second);
}

void Dialer::try_once(int peer, Call& call) {
  if (!inbox_->begin(peer)) return pause(call);  // the peer's connection is about to come
  const Endpoint& to = peers_[static_cast<std::size_t>(peer)];
  auto fd = start_connect_tcp(to.address, to.port, from_);
  if (!fd.ok()) return failed(peer, call, fd.status());
  auto pending = PendingConnection::to(*inbox_, peer, std::move(*fd), tls_);
  if (!pending.ok()) return failed(peer, call, pending.status());
  call.pending.emplace(std::move(*pending));
  call.lack.reset();
  call.next = Deadline::after(call.patience);
  next_look_ = next_look_.sooner(call.next);
  call.pending->watch(epoll_, tag(peer));
}

void Dialer::close(Call& call) {
  if (!call.pending) return;
  // A forked child may hold the socket, too, so closing alone would not end the events.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, call.pending->fd(), nullptr);
  call.pending.reset();
}

void Dialer::pause(Call& call) {
  close(call);
  call.next = Deadline::after(kPause);
  next_look_ = next_look_.sooner(call.next);
}

void Dialer::failed(int peer, Call& call, const Status& why) {
  call.reason = why.message();
  // An established connection that the other end closed counts as refused, because another process
  // may have the peer's port now.
  const bool closed = call.pending && call.pending->connected();
  const bool refused = why.code() == Code::kUnavail || closed;
  if (why.code() == Code::kSyscall && !call.lack) call.lack = Deadline::after(kLackTime);
  if (!refused) call.ended.reset();
  if (refused && !call.ended) call.ended = Deadline::after(closed ? kClosedTime : kRefusalTime);
  pause(call);
  inbox_->end(peer, false);
}

void Dialer::hang_up(int peer) {
  const auto at = calls_.find(peer);
  if (at == calls_.end()) return;
  close(at->second);
  calls_.erase(at);
}

void Dialer::hang_up() {
  for (auto& [peer, call] : calls_) close(call);
  calls_.clear();
}

/// Ends the call with a failure, unless the peer's connection is about to come.
void Dialer::give_up(Calls::iterator at, Status why) {
  auto& [peer, call] = *at;
  call.ended.reset();
  call.lack.reset();
  if (inbox_->end(peer, false)) return pause(call);
  close(call);
  outcomes_.push_back({peer, std::move(why)});
  calls_.erase(at);
}

void Dialer::event(std::uint64_t tag) {
  const auto at = calls_.find(static_cast<int>(tag & (kTag - 1)));
  if (at != calls_.end() && at->second.pending) step(at);
}

void Dialer::step(Calls::iterator at) {
  auto& [peer, call] = *at;
  PendingConnection& pending = *call.pending;
  const Status status = pending.advance();
  if (status.code() == Code::kNotFound) return ended(at);
  if (!status.ok()) return failed(peer, call, status);
  if (pending.greeted()) return greet(at);
  pending.watch(epoll_, tag(peer));
}

void Dialer::greet(Calls::iterator at) {
  auto& [peer, call] = *at;
  const Hello hello = call.pending->hello();
  if (hello.magic != kMagic || hello.version != kVersion ||
      hello.from != static_cast<std::uint32_t>(peer) ||
      hello.to != static_cast<std::uint32_t>(inbox_->rank())) {
    return failed(peer, call, Status(Code::kTcpConnect, "another program or version answered"));
  }
  switch (hello.answer) {
    case Answer::kWelcome: {
      ::epoll_ctl(epoll_, EPOLL_CTL_DEL, call.pending->fd(), nullptr);
      Connection connection = call.pending->take();
      call.pending.reset();
      if (inbox_->end(peer, true)) return pause(call);
      outcomes_.push_back({peer, std::move(connection)});
      calls_.erase(at);
      return;
    }
    case Answer::kCrossed:
      call.ended.reset();
      inbox_->end(peer, false);
      call.reason = "the peer connects itself, and its connection does not come";
      return pause(call);
    case Answer::kAsk:
    case Answer::kEnded:
      break;
  }
  return ended(at);
}

/// Ends the call, because the mesh or the pair's connection has ended at the peer.
void Dialer::ended(Calls::iterator at, const std::string& reason) {
  const int peer = at->first;
  give_up(at, Status(Code::kRemote,
                     "rank " + std::to_string(peer) + std::string(kClosedByPeer) +
                         std::to_string(inbox_->rank()) + reason,
                     peer));
}

void Dialer::look() {
  if (!next_look_.expired()) return;
  next_look_ = Deadline::never();
  for (auto at = calls_.begin(); at != calls_.end();) {
    const auto current = at++;
    auto& [peer, call] = *current;
    // After the hello the peer may already use this connection.
    const bool committed = call.pending && call.pending->has_greeted();
    if (call.lack && call.lack->expired()) {
      const std::string own = "rank " + std::to_string(inbox_->rank());
      give_up(current, Status(Code::kSyscall, own + " cannot make a connection: " + call.reason,
                              inbox_->rank()));
      continue;
    }
    if (call.ended && call.ended->expired() && !call.pending) {
      ended(current, " (" + call.reason + ")");
      continue;
    }
    if (call.end.expired() && !committed) {
      give_up(current, Status(Code::kTimeout,
                              "rank " + std::to_string(inbox_->rank()) + " has no connection to " +
                                  where(peer) + " after the time to connect: " +
                                  (call.reason.empty() ? "it does not answer" : call.reason),
                              peer));
      continue;
    }
    if (call.next.expired()) {
      if (call.pending && call.pending->connected()) {
        call.next = call.end;  // only the peer's process is slow: no new try
      } else if (call.pending) {
        call.patience = std::min<std::chrono::nanoseconds>(2 * call.patience, time_);
        failed(peer, call, Status(Code::kTimeout, "it does not answer"));
      } else {
        try_once(peer, call);
      }
    }
    next_look_ = next_look_.sooner(call.next).sooner(call.end);
  }
}

std::vector<Dialer::Outcome> Dialer::take() { return std::exchange(outcomes_, {}); }

}  // namespace hccl::transport::tcp
