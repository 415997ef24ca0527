#include "transport/tcp/tcp_mesh.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/nap_sleeper.h"

namespace hccl::transport::tcp {
namespace {

// Closing waits at most this long until the peers' kernels have taken the sent bytes.
constexpr std::chrono::seconds kLinger{2};
// Up to this number of sockets are read without asking epoll first, and epoll watches them only
// while this rank sleeps. This saves a system call for each arriving message, and work in the
// kernel.
constexpr std::size_t kFewLinks = 4;
// Links without awaited bytes are read only in one of this many calls of progress().
constexpr unsigned kLooksAtUnexpected = 16;
// A rank that does not sleep reads the clock in one of this many calls of progress().
constexpr unsigned kLooksAtClock = 1024;
constexpr std::chrono::seconds kLookInterval{1};

}  // namespace

TcpMesh::TcpMesh(std::unique_ptr<EpollSleeper> sleeper, Admission admission,
                 std::vector<Endpoint> peers, const std::shared_ptr<const TlsContext>& tls,
                 const OpenArgs& args, const Config& config)
    : rank_(args.rank),
      hosts_(args.hosts),
      wire_(config.wire),
      peer_timeout_(config.peer_timeout),
      receives_connect_(args.receives_connect),
      epoll_(std::move(sleeper)),
      sleeper_(*this),
      admission_(std::move(admission)),
      inbox_(*admission_.inbox()),
      dialer_(admission_.inbox(), args.address, std::move(peers), tls, config.connect_timeout,
              epoll_->epoll()),
      share_(static_cast<std::size_t>(args.size), epoll_->epoll()),
      slots_(static_cast<std::size_t>(args.size)),
      look_interval_(std::min<std::chrono::nanoseconds>(peer_timeout_ / 4, kLookInterval)) {
  for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
    if (!absent(peer)) continue;
    link_to(peer).fail(Status(Code::kRemote, "rank " + std::to_string(peer) + " has left",
                              static_cast<int>(peer)));
  }
}

TcpMesh::~TcpMesh() {
  if (!abort_.raised()) drain();
}

// ---- connections ----

bool TcpMesh::near(std::size_t peer) const {
  return hosts_.empty() || hosts_[peer] == hosts_[static_cast<std::size_t>(rank_)];
}

Link& TcpMesh::link_to(std::size_t peer) {
  std::unique_ptr<Link>& link = slots_[peer].link;
  if (link == nullptr) {
    const bool summed = wire_ == Wire::kCrc || (wire_ == Wire::kAuto && !near(peer));
    link = std::make_unique<Link>(rank_, static_cast<int>(peer), summed, share_);
  }
  return *link;
}

void TcpMesh::connect(std::size_t peer, Connection connection) {
  Link& link = link_to(peer);
  if (!link.alive() || link.connected()) return connection.reset();
  connection.suit(near(peer));
  link.connect(std::move(connection));
  connected_.push_back(peer);
  if (!near(peer)) slots_[peer].path.emplace(link.fd(), peer_timeout_);
  if (few_ && connected_.size() > kFewLinks) {
    few_ = false;
    if (!going_to_sleep_) return watch_all(EPOLL_CTL_ADD);
  }
  if (!few_ || going_to_sleep_) watch(peer, EPOLL_CTL_ADD);
}

/// Takes the connections that peers opened, and the results of dialer_'s calls to peers. Returns
/// whether there were any.
bool TcpMesh::take_connections() {
  bool any = false;
  if (inbox_.rang()) {
    any = true;
    Status lack;
    for (Inbox::Arrival& arrival : inbox_.take(lack)) {
      dialer_.hang_up(arrival.peer);
      connect(static_cast<std::size_t>(arrival.peer), std::move(arrival.connection));
      posted(static_cast<std::size_t>(arrival.peer));
    }
    if (!lack.ok()) fail_unconnected(lack);
  }
  dialer_.look();
  for (Dialer::Outcome& outcome : dialer_.take()) {
    any = true;
    const auto peer = static_cast<std::size_t>(outcome.peer);
    if (outcome.connection.ok()) {
      connect(peer, std::move(*outcome.connection));
    } else {
      link_to(peer).fail(outcome.connection.status());
    }
    posted(peer);
  }
  return any;
}

/// Fails the receives that wait for a connection, because this process cannot accept connections.
void TcpMesh::fail_unconnected(const Status& lack) {
  const Status why(lack.code(),
                   "rank " + std::to_string(rank_) + " cannot take a connection: " + lack.message(),
                   rank_);
  for (const Slot& slot : slots_) {
    if (slot.link == nullptr || slot.link->connected()) continue;
    if (slot.link->expects()) slot.link->fail(why);
  }
}

// ---- messages ----

void TcpMesh::send(Request& request, int peer, std::uint32_t lane,
                   std::span<const std::byte> bytes) {
  if (refused(request, size(), peer, lane, abort_)) return;
  if (peer == rank_) return self_.send(request, peer, lane, bytes);
  link_to(static_cast<std::size_t>(peer)).send(request, lane, bytes);
  expect(peer);
  posted(static_cast<std::size_t>(peer));
}

void TcpMesh::recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) {
  if (refused(request, size(), peer, lane, abort_)) return;
  if (peer == rank_) return self_.recv(request, peer, lane, bytes);
  link_to(static_cast<std::size_t>(peer)).recv(request, lane, bytes);
  posted(static_cast<std::size_t>(peer));
}

void TcpMesh::expect(int peer) {
  if (peer < 0 || peer >= size() || peer == rank_ || abort_.raised()) return;
  Link& link = link_to(static_cast<std::size_t>(peer));
  if (!link.connected() && link.alive()) dialer_.call(peer);
}

bool TcpMesh::progress() {
  if (abort_.raised()) return fail_all();
  bool moved = write_dirty();
  if (few_) moved |= look_at_all();
  if (!few_ || !dialer_.idle()) moved |= look_at_events();
  if (wire_ == Wire::kTls) moved |= look_at_decrypted();
  if (inbox_.rang() || !dialer_.idle()) moved |= take_connections();
  if (++looks_ % kLooksAtClock == 0) look_at_links();
  // Reading may have produced frames to write.
  return write_dirty() || moved;
}

void TcpMesh::abort(Status status) {
  abort_.raise(std::move(status));
  epoll_->ring();
}

bool TcpMesh::fail_all() {
  if (failed_) return false;
  failed_ = true;
  inbox_.close();  // peers that connect from now on learn that this mesh has ended
  dialer_.hang_up();
  const Status reason = abort_.reason();
  for (Slot& slot : slots_) {
    if (slot.link != nullptr) slot.link->fail(reason);
  }
  self_.fail(reason);
  return true;
}

// ---- sockets ----

bool TcpMesh::look_at_all() {
  bool moved = false;
  const bool unexpected = looks_ % kLooksAtUnexpected == 0;
  for (const std::size_t peer : connected_) {
    Slot& slot = slots_[peer];
    if (!slot.link->connected()) continue;
    if (slot.blocked) moved |= write(peer);
    if (!unexpected && !slot.link->expects()) continue;
    moved |= slot.link->read();
    posted(peer);
  }
  return moved;
}

/// Reads the bytes that TLS took from the socket and still buffers. Such bytes would not wake a
/// sleeper.
bool TcpMesh::look_at_decrypted() {
  bool moved = false;
  for (const std::size_t peer : connected_) {
    if (!slots_[peer].link->pending()) continue;
    moved |= slots_[peer].link->read();
    posted(peer);
  }
  return moved;
}

/// Ends the links whose path carries no bytes any more. If receives_connect_, calls the peers of
/// receives that have waited long without a connection. Such a call shows whether the peer lives,
/// and serves as the connection if the peer cannot connect to this rank.
void TcpMesh::look_at_links() {
  if (!next_look_.expired()) return;
  next_look_ = Deadline::after(look_interval_);
  for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
    Slot& slot = slots_[peer];
    if (slot.link == nullptr || !slot.link->alive()) continue;
    if (!slot.link->connected()) {
      const bool waits = receives_connect_ && slot.link->expects();
      if (slot.awaited && waits) dialer_.call(static_cast<int>(peer));
      slot.awaited = waits;
      continue;
    }
    const std::string fault = slot.path ? slot.path->fault(slot.link->fd()) : "";
    if (!fault.empty()) slot.link->cut_off(fault);
  }
}

bool TcpMesh::look_at_events() {
  bool moved = false;
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_->epoll(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == EpollSleeper::kWake) continue;
    if (Dialer::is_tag(event.data.u64)) {
      dialer_.event(event.data.u64);
      moved = true;
      continue;
    }
    const std::size_t peer = event.data.u64;
    Slot& slot = slots_[peer];
    if ((event.events & EPOLLOUT) != 0) {
      slot.blocked = false;
      moved |= write(peer);
    }
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && slot.link->connected()) {
      moved |= slot.link->read();
      posted(peer);
    }
  }
  return moved;
}

void TcpMesh::posted(std::size_t peer) {
  Slot& slot = slots_[peer];
  if (slot.dirty || slot.blocked || !slot.link->has_output()) return;
  if (going_to_sleep_) {
    write(peer);
    return;
  }
  slot.dirty = true;
  dirty_.push_back(peer);
}

bool TcpMesh::write_dirty() {
  bool moved = false;
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    slots_[dirty_[i]].dirty = false;
    moved |= write(dirty_[i]);
  }
  dirty_.clear();
  return moved;
}

bool TcpMesh::write(std::size_t peer) {
  Slot& slot = slots_[peer];
  const bool moved = slot.link->write();
  slot.blocked = slot.link->has_output();
  const bool watched = !few_ || going_to_sleep_;
  if (watched && slot.blocked != slot.watches_write && slot.link->connected()) {
    watch(peer, EPOLL_CTL_MOD);
  }
  return moved;
}

void TcpMesh::watch_all(int operation) {
  for (const std::size_t peer : connected_) {
    if (slots_[peer].link->connected()) watch(peer, operation);
  }
}

void TcpMesh::watch(std::size_t peer, int operation) {
  Slot& slot = slots_[peer];
  slot.watches_write = slot.blocked;
  watch_fd(epoll_->epoll(), operation, slot.link->fd(),
           slot.watches_write ? EPOLLIN | EPOLLOUT : EPOLLIN, peer);
}

std::uint32_t TcpMesh::LinkSleeper::prepare() {
  if (mesh_.few_) mesh_.watch_all(EPOLL_CTL_ADD);
  mesh_.going_to_sleep_ = true;
  return mesh_.epoll_->prepare();
}

void TcpMesh::LinkSleeper::sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
  mesh_.epoll_->sleep(ticket, at_most);
}

void TcpMesh::LinkSleeper::awake() {
  mesh_.epoll_->awake();
  mesh_.going_to_sleep_ = false;
  if (mesh_.few_) mesh_.watch_all(EPOLL_CTL_DEL);
  mesh_.look_at_links();
}

// ---- the end ----

/// Before the sockets close, all sent bytes must be in the peers' kernels: if a peer still sends to
/// this rank, closing would discard bytes that are on the way.
void TcpMesh::drain() {
  for (const std::size_t peer : connected_) {
    Link& link = *slots_[peer].link;
    if (!link.connected()) continue;
    link.write();
    link.finish();
  }
  NapSleeper nap;
  const Waiter waiter{.timeout = kLinger, .abort = &abort_, .policy = kSleepAtOnce};
  static_cast<void>(waiter.until([this] { return drained(); }, nap));
}

bool TcpMesh::drained() {
  bool all = true;
  for (const std::size_t peer : connected_) {
    Link& link = *slots_[peer].link;
    int unsent = 0;
    if (link.connected() && ::ioctl(link.fd(), SIOCOUTQ, &unsent) == 0 && unsent > 0) {
      link.read();  // the peer may wait until its own sends are read
      all = false;
    }
  }
  return all;
}

}  // namespace hccl::transport::tcp
