#include "hccl/join/control_line.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "hccl/join/host.h"

namespace hccl::join {
namespace {

using wire::Kind;

constexpr std::chrono::seconds kSendTime{10};
// The coordinator names the absent ranks at HCCL_CONNECT_TIMEOUT; its frame takes a moment.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kAcknowledgeTime{1};

Result<std::string> local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  char text[INET6_ADDRSTRLEN] = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return Status(Code::kSyscall, "getsockname failed");
  }
  const void* address =
      storage.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(&storage)->sin_addr)
          : &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_addr;
  ::inet_ntop(storage.ss_family, address, text, sizeof text);
  return std::string(text);
}

// Tries the ports in turn, as another program may listen on some of them. Tries again after a
// closed connection: a coordinator crowded by strangers turns callers away.
Result<Fd> find_coordinator(const RootInfo& info, const std::string& from, Deadline deadline) {
  Status last;
  auto pause = std::chrono::milliseconds(10);
  for (int i = 0;; i = (i + 1) % info.ports) {
    const auto port = static_cast<std::uint16_t>(info.port + i);
    const Deadline turn = info.ports == 1
                              ? deadline
                              : deadline.sooner(Deadline::after(std::chrono::milliseconds(50)));
    auto fd = connect_tcp(info.address, port, from, turn);
    if (fd.ok()) {
      const Deadline proof = deadline.sooner(Deadline::after(std::chrono::seconds(5)));
      last = authenticate(
          fd->get(), Handshake(Handshake::Side::kClient, info.secret, info.id, "control"), proof);
      if (last.ok()) return fd;
      // A wrong proof at the one port: the coordinator will not appear there later.
      if (info.ports == 1 && last.code() == Code::kTcpConnect) {
        return last.with_context("joining at " + endpoint_text(info.address, port));
      }
      pause = std::min(2 * pause, std::chrono::milliseconds(640));
      nap(pause, deadline);
    } else {
      last = fd.status();
      // Of this process: it would not be another time.
      if (last.code() == Code::kSyscall) return last.with_context("joining");
    }
    if (deadline.expired()) {
      return Status(Code::kTimeout, "EI0006: the root at " +
                                        endpoint_text(info.address, info.port) +
                                        " does not answer: " + last.message());
    }
  }
}

}  // namespace

ControlLine::ControlLine(Fd socket, const RootInfo& info, int rank,
                         std::chrono::nanoseconds peer_timeout, Logger log)
    : socket_(std::move(socket)),
      info_(info),
      rank_(rank),
      peer_timeout_(peer_timeout),
      log_(std::move(log)) {}

Result<std::shared_ptr<ControlLine>> ControlLine::join(const RootInfo& info, int size, int rank,
                                                       const Config& config, Logger log) {
  const Deadline deadline = Deadline::after(config.connect_timeout);
  HCCL_ASSIGN_OR_RETURN(Fd socket, find_coordinator(info, config.if_ip, deadline));
  std::shared_ptr<ControlLine> control(
      new ControlLine(std::move(socket), info, rank, config.peer_timeout, std::move(log)));
  const Deadline table = Deadline::after(config.connect_timeout + kGrace);
  HCCL_RETURN_IF_ERROR(control->say_hello(size, config, table));
  control->thread_ = std::thread([raw = control.get()] {
    try {
      raw->listen();
    } catch (...) {
      raw->fail(caught());
    }
  });
  return control;
}

Status ControlLine::say_hello(int size, const Config& config, Deadline deadline) {
  wire::Member me;
  me.rank = static_cast<std::uint32_t>(rank_);
  me.pid = static_cast<std::uint32_t>(::getpid());
  me.cores = core_mask();
  me.host = host_identity();
  HCCL_ASSIGN_OR_RETURN(me.address, local_address(socket_.get()));
  ByteWriter hello;
  hello.put(Kind::kHello).put(wire::kVersion).put(static_cast<std::uint32_t>(size));
  hello.put_text(config.agreement());
  wire::put(hello, me);
  HCCL_RETURN_IF_ERROR(send_frame(socket_.get(), hello.bytes(), deadline));

  auto frame = recv_frame(socket_.get(), wire::kReplyCap, deadline);
  if (!frame.ok()) return frame.status().with_context("joining: no word from the root");
  ByteReader in(*frame);
  const auto kind = in.get<Kind>();
  if (kind == Kind::kRefused) return wire::get_status(in);
  const auto number = in.get<std::uint32_t>();
  const auto coordinator_rank = in.get<std::uint32_t>();
  if (kind != Kind::kTable || number != static_cast<std::uint32_t>(size)) {
    return Status(Code::kInternal, "joining: the root sent something else than the table of ranks");
  }
  coordinator_rank_ = coordinator_rank < number ? static_cast<int>(coordinator_rank) : -1;
  for (std::uint32_t r = 0; r < number; ++r) members_.push_back(wire::get_member(in));
  if (!in.finished()) return Status(Code::kInternal, "joining: the table of ranks is damaged");
  return {};
}

ControlLine::~ControlLine() {
  ::shutdown(socket_.get(), SHUT_RDWR);  // ends the thread's read
  if (thread_.joinable()) thread_.join();
}

void ControlLine::send(const std::string& frame) {
  std::lock_guard lock(send_mutex_);
  // A failure here means that the coordinator has gone; the reading thread reports that.
  const Status sent = send_frame(socket_.get(), frame, Deadline::after(kSendTime));
  if (!sent.ok()) log_->debug("control: {}", sent.message());
}

void ControlLine::listen() {
  const auto interval = wire::beat_interval(peer_timeout_);
  Deadline silence = Deadline::after(peer_timeout_);
  Deadline next_beat = Deadline::after(interval);
  bool silent = false;
  while (!silent) {
    if (next_beat.expired()) {
      send(ByteWriter().put(Kind::kBeat).take());
      next_beat = Deadline::after(interval);
    }
    // Reads what has arrived before it judges silence: this process itself may have been stopped.
    if (wait_fd(socket_.get(), POLLIN, next_beat).code() == Code::kTimeout) {
      silent = silence.expired();
      continue;
    }
    auto frame = recv_frame(socket_.get(), wire::kReplyCap, Deadline::after(peer_timeout_));
    if (!frame.ok()) break;
    silence = Deadline::after(peer_timeout_);
    handle(*frame);
  }
  lost(silent);
}

void ControlLine::lost(bool silent) {
  std::lock_guard lock(mutex_);
  const bool orderly = leaving_ || (coordinator_rank_ >= 0 && left_.count(coordinator_rank_) != 0);
  const std::string who = coordinator_rank_ >= 0 ? "rank " + std::to_string(coordinator_rank_)
                                                 : std::string("the root");
  std::string where;
  if (coordinator_rank_ >= 0) {
    const auto& member = members_[static_cast<std::size_t>(coordinator_rank_)];
    where = " (" + member.address + " pid " + std::to_string(member.pid) + ")";
  }
  dead_ = Status(
      Code::kRemote,
      who + where +
          (silent ? " has given no sign of life (HCCL_PEER_TIMEOUT): it is stopped, or cut off"
                  : " died or was cut off"),
      coordinator_rank_);
  finish_all(*dead_);
  if (!orderly) {
    for (FailureListener* each : listeners_) each->on_failure(Uuid{}, *dead_);
  }
  bell_.ring();
}

// Without this thread the rank hears nothing any more. The others hear that its line has ended.
void ControlLine::fail(const Status& why) noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
  const std::lock_guard lock(mutex_);
  dead_ = why;
  try {
    finish_all(why);
    for (FailureListener* each : listeners_) each->on_failure(Uuid{}, why);
  } catch (...) {  // those that are left hear of it when they ask
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
  std::lock_guard lock(mutex_);
  if (kind == Kind::kFailure) {
    const auto scope = in.get<Uuid>();
    const Status why = wire::get_status(in);
    if (scope == Uuid{}) deaths_.push_back(why);
    for (FailureListener* each : listeners_) each->on_failure(scope, why);
  } else if (kind == Kind::kSummons) {
    const auto scope = in.get<Uuid>();
    for (FailureListener* each : listeners_) each->on_summons(scope);
  } else if (kind == Kind::kLeave) {
    const auto rank = static_cast<int>(in.get<std::uint32_t>());
    left_.insert(rank);
  } else if (kind == Kind::kExchange) {
    const auto key = in.get<Uuid>();
    const auto absent = in.get<std::uint32_t>();
    const auto at = pending_.find(key);
    if (at == pending_.end()) return;
    if (absent != 0) {
      std::string list;
      for (std::uint32_t i = 0; i < absent && i < 64; ++i) {
        list += (i == 0 ? "" : ", ") + std::to_string(in.get<std::uint32_t>());
      }
      at->second->result = Status(Code::kTimeout, "ranks that did not come: " + list);
    } else {
      const auto number = in.get<std::uint32_t>();
      std::vector<std::string> parts;
      for (std::uint32_t i = 0; i < number && in.ok(); ++i)
        parts.push_back(in.get_text(wire::kBlobCap));
      if (in.finished()) at->second->result = std::move(parts);
    }
    at->second->done = true;
    pending_.erase(at);
  }
  bell_.ring();
}

Result<std::vector<std::string>> ControlLine::exchange(const Uuid& key, std::uint32_t size,
                                                       std::uint32_t index, const std::string& mine,
                                                       Deadline deadline, const AbortFlag& abort) {
  if (mine.size() > wire::kBlobCap) return Status(Code::kInternal, "an exchange of too many bytes");
  auto pending = std::make_shared<Pending>();
  {
    std::lock_guard lock(mutex_);
    if (dead_) return *dead_;
    pending_[key] = pending;
  }
  ByteWriter out;
  out.put(Kind::kExchange).put(key).put(size).put(index);
  out.put(static_cast<std::uint64_t>(deadline.left().count())).put_text(mine);
  send(out.bytes());
  const auto ready = [&] {
    std::lock_guard lock(mutex_);
    return pending->done;
  };
  // The coordinator names the absent ranks at the deadline; its frame takes a moment.
  const auto left = deadline.left();
  const Deadline patience =
      left > std::chrono::hours(24) ? Deadline::never() : Deadline::after(left + kGrace);
  const Waiter waiter{.deadline = patience, .abort = &abort, .policy = kSleepAtOnce};
  const Waited waited = waiter.until(ready, bell_);
  std::lock_guard lock(mutex_);
  if (waited != Waited::kReady) {
    pending_.erase(key);
    if (waited == Waited::kAborted) return abort.reason();
    return Status(Code::kTimeout, "the root does not answer");
  }
  return std::move(pending->result);
}

void ControlLine::report(const Uuid& scope, const Status& why) {
  ByteWriter out;
  out.put(Kind::kFailure).put(scope);
  wire::put(out, why);
  send(out.bytes());
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

bool ControlLine::has_left(int rank) const {
  std::lock_guard lock(mutex_);
  return left_.count(rank) != 0;
}

void ControlLine::add(FailureListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_.insert(listener);
  for (const Status& death : deaths_) listener->on_failure(Uuid{}, death);
  if (dead_) listener->on_failure(Uuid{}, *dead_);
}

void ControlLine::remove(FailureListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_.erase(listener);
}

bool ControlLine::others_left() const {
  if (dead_) return true;
  const auto& me = members_[static_cast<std::size_t>(rank_)];
  return std::all_of(members_.begin(), members_.end(), [&](const wire::Member& member) {
    // Ranks of this process may wait for the caller's thread.
    return (member.pid == me.pid && member.host == me.host) ||
           left_.count(static_cast<int>(member.rank)) != 0;
  });
}

void ControlLine::leave(std::chrono::nanoseconds at_most) {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  send(ByteWriter().put(Kind::kLeave).take());
  // Closing a socket that has something to read cuts off what was sent: the coordinator must have
  // read it first.
  const auto acknowledged = [this] {
    std::lock_guard lock(mutex_);
    return dead_ || left_.count(rank_) != 0;
  };
  const auto alone = [this] {
    std::lock_guard lock(mutex_);
    return others_left();
  };
  Waiter waiter{.deadline = Deadline::after(kAcknowledgeTime), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until(acknowledged, bell_));
  waiter.deadline = Deadline::after(at_most);
  static_cast<void>(waiter.until(alone, bell_));
}

}  // namespace hccl::join
