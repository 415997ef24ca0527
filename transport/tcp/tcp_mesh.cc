#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/fd.h"
#include "hccl/base/socket.h"
#include "transport/agree.h"
#include "transport/nap_sleeper.h"
#include "transport/self_link.h"
#include "transport/tcp/join.h"
#include "transport/tcp/link.h"
#include "transport/tcp/path.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace tcp {
namespace {

constexpr std::size_t kAddressCap = 64;
// How long closing waits until the peers' kernels have taken the sent bytes.
constexpr std::chrono::seconds kLinger{2};
constexpr int kSocketBuffer = 4 << 20;

/// Sets large fixed buffers if the system allows them. A smaller fixed size would be worse than the
/// size that the kernel chooses.
void enlarge_buffers(int fd) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    const char* limit_file =
        option == SO_SNDBUF ? "/proc/sys/net/core/wmem_max" : "/proc/sys/net/core/rmem_max";
    int limit = 0;
    if (!(std::ifstream(limit_file) >> limit) || limit < kSocketBuffer) continue;
    ::setsockopt(fd, SOL_SOCKET, option, &kSocketBuffer, sizeof kSocketBuffer);
  }
}

/// Within a host no network is shared and no packet is lost. There a congestion control that paces
/// (BBR) would limit the bursts of a collective to the mean rate that it has measured. Between
/// hosts the system's choice stays.
void do_not_pace(int fd) {
  constexpr std::string_view kAlwaysThere = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kAlwaysThere.data(), kAlwaysThere.size());
}

class TcpMesh final : public Mesh {
 public:
  /// `hosts` as in OpenArgs; empty: one host.
  TcpMesh(int rank, std::vector<Connection> connections, std::unique_ptr<EpollSleeper> sleeper,
          const std::vector<int>& hosts, const Config& config)
      : rank_(rank),
        epoll_(std::move(sleeper)),
        sleeper_(*this),
        share_(connections.size(), epoll_->epoll()),
        slots_(connections.size()),
        few_(connections.size() <= kFewLinks),
        encrypted_(config.wire == Wire::kTls),
        path_interval_(std::min<std::chrono::nanoseconds>(config.peer_timeout / 4, kPathInterval)) {
    for (std::size_t peer = 0; peer < connections.size(); ++peer) {
      if (!connections[peer].valid()) continue;
      const bool near = hosts.empty() || hosts[peer] == hosts[static_cast<std::size_t>(rank)];
      const bool summed = config.wire == Wire::kCrc || (config.wire == Wire::kAuto && !near);
      slots_[peer].link = std::make_unique<Link>(rank, static_cast<int>(peer),
                                                 std::move(connections[peer]), summed, share_);
      enlarge_buffers(slots_[peer].link->fd());
      if (near) do_not_pace(slots_[peer].link->fd());
      if (!near) slots_[peer].path.emplace(slots_[peer].link->fd(), config.peer_timeout);
      if (!few_) watch(peer, EPOLL_CTL_ADD);
    }
  }

  ~TcpMesh() override {
    if (!abort_.raised()) drain();
  }

  std::string_view name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(slots_.size()); }
  Sleeper& sleeper() override { return sleeper_; }

  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    if (refuse(request, peer, lane)) return;
    if (peer == rank_) return self_.send(request, peer, lane, bytes);
    slots_[static_cast<std::size_t>(peer)].link->send(request, lane, bytes);
    posted(static_cast<std::size_t>(peer));
  }

  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override {
    if (refuse(request, peer, lane)) return;
    if (peer == rank_) return self_.recv(request, peer, lane, bytes);
    slots_[static_cast<std::size_t>(peer)].link->recv(request, lane, bytes);
    posted(static_cast<std::size_t>(peer));
  }

  bool progress() override {
    if (abort_.raised()) return fail_all();
    bool moved = write_dirty();
    if (few_) {
      moved |= look_at_all();
    } else {
      moved |= look_at_events();
    }
    if (encrypted_) moved |= look_at_decrypted();
    if (++looks_ % kLooksAtClock == 0) look_at_paths();
    // Reading may have produced answers.
    return write_dirty() || moved;
  }

  void abort(Status status) override {
    abort_.raise(std::move(status));
    epoll_->ring();
  }

 private:
  /// Up to this number of sockets are read without asking epoll first, and watched only while this
  /// rank sleeps. This saves a system call for each arriving message, and work in the kernel.
  static constexpr std::size_t kFewLinks = 4;
  /// Links without awaited bytes are read only once in this many looks.
  static constexpr unsigned kLooksAtUnexpected = 16;
  /// A rank that does not sleep reads the clock once in this many looks.
  static constexpr unsigned kLooksAtClock = 1024;
  static constexpr std::chrono::seconds kPathInterval{1};

  class LinkSleeper final : public PolledSleeper {
   public:
    explicit LinkSleeper(TcpMesh& mesh) : mesh_(mesh) {}
    int epoll() const override { return mesh_.epoll_->epoll(); }
    std::uint32_t prepare() override {
      if (mesh_.few_) mesh_.watch_all(EPOLL_CTL_ADD);
      mesh_.going_to_sleep_ = true;
      return mesh_.epoll_->prepare();
    }
    void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
      mesh_.epoll_->sleep(ticket, at_most);
    }
    void awake() override {
      mesh_.epoll_->awake();
      mesh_.going_to_sleep_ = false;
      if (mesh_.few_) mesh_.watch_all(EPOLL_CTL_DEL);
      mesh_.look_at_paths();
    }

   private:
    TcpMesh& mesh_;
  };

  struct Slot {
    std::unique_ptr<Link> link;  ///< null for this rank itself
    bool dirty = false;          ///< in dirty_: has output that no write has tried yet
    bool blocked = false;        ///< the socket was full: epoll tells when to go on
    bool watches_write = false;
    std::optional<Path> path;  ///< between hosts
  };

  bool look_at_all() {
    bool moved = false;
    const bool unexpected = looks_ % kLooksAtUnexpected == 0;
    for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
      Slot& slot = slots_[peer];
      if (slot.link == nullptr || !slot.link->alive()) continue;
      if (slot.blocked) moved |= write(peer);
      if (!unexpected && !slot.link->expects()) continue;
      moved |= slot.link->read();
      posted(peer);
    }
    return moved;
  }

  /// Bytes that have left the socket but are not read yet would not wake a sleeper.
  bool look_at_decrypted() {
    bool moved = false;
    for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
      Slot& slot = slots_[peer];
      if (slot.link == nullptr || !slot.link->pending()) continue;
      moved |= slot.link->read();
      posted(peer);
    }
    return moved;
  }

  /// Ends the links whose path carries nothing any more.
  void look_at_paths() {
    if (!next_path_look_.expired()) return;
    next_path_look_ = Deadline::after(path_interval_);
    for (Slot& slot : slots_) {
      if (!slot.path || !slot.link->alive()) continue;
      const std::string fault = slot.path->fault(slot.link->fd());
      if (!fault.empty()) slot.link->cut_off(fault);
    }
  }

  bool look_at_events() {
    bool moved = false;
    std::array<epoll_event, 64> events;
    const int count =
        ::epoll_wait(epoll_->epoll(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == EpollSleeper::kWake) continue;
      const std::size_t peer = event.data.u64;
      Slot& slot = slots_[peer];
      if ((event.events & EPOLLOUT) != 0) {
        slot.blocked = false;
        moved |= write(peer);
      }
      if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && slot.link->alive()) {
        moved |= slot.link->read();
        posted(peer);
      }
    }
    return moved;
  }

  /// Fails an invalid post.
  bool refuse(Request& request, int peer, std::uint32_t lane) {
    Status status = check_post(size(), peer, lane);
    if (status.ok() && abort_.raised()) status = abort_.reason();
    if (status.ok()) return false;
    request.begin(peer, lane, nullptr, 0);
    request.finish(std::move(status));
    return true;
  }

  void posted(std::size_t peer) {
    Slot& slot = slots_[peer];
    if (slot.dirty || slot.blocked || !slot.link->has_output()) return;
    if (going_to_sleep_) {
      write(peer);
      return;
    }
    slot.dirty = true;
    dirty_.push_back(peer);
  }

  bool write_dirty() {
    bool moved = false;
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
      slots_[dirty_[i]].dirty = false;
      moved |= write(dirty_[i]);
    }
    dirty_.clear();
    return moved;
  }

  bool write(std::size_t peer) {
    Slot& slot = slots_[peer];
    const bool moved = slot.link->write();
    slot.blocked = slot.link->has_output();
    const bool watched = !few_ || going_to_sleep_;
    if (watched && slot.blocked != slot.watches_write && slot.link->alive()) {
      watch(peer, EPOLL_CTL_MOD);
    }
    return moved;
  }

  void watch_all(int operation) {
    for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
      if (slots_[peer].link != nullptr && slots_[peer].link->alive()) watch(peer, operation);
    }
  }

  void watch(std::size_t peer, int operation) {
    Slot& slot = slots_[peer];
    slot.watches_write = slot.blocked;
    epoll_event event{};
    event.events = slot.watches_write ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u64 = peer;
    ::epoll_ctl(epoll_->epoll(), operation, slot.link->fd(), &event);
  }

  bool fail_all() {
    if (failed_) return false;
    failed_ = true;
    const Status reason = abort_.reason();
    for (Slot& slot : slots_) {
      if (slot.link != nullptr) slot.link->fail(reason);
    }
    self_.fail(reason);
    return true;
  }

  /// Before the sockets close, all sent bytes must be in the peers' kernels: closing would discard
  /// them while peers still send to this rank.
  void drain() {
    for (Slot& slot : slots_) {
      if (slot.link == nullptr || !slot.link->alive()) continue;
      slot.link->write();
      slot.link->finish();
    }
    NapSleeper nap;
    const Waiter waiter{.timeout = kLinger, .abort = &abort_, .policy = kSleepAtOnce};
    static_cast<void>(waiter.until([this] { return drained(); }, nap));
  }

  bool drained() {
    bool all = true;
    for (Slot& slot : slots_) {
      if (slot.link == nullptr || !slot.link->alive()) continue;
      int unsent = 0;
      if (::ioctl(slot.link->fd(), SIOCOUTQ, &unsent) == 0 && unsent > 0) {
        slot.link->read();  // the peer may wait until its own sends are read
        all = false;
      }
    }
    return all;
  }

  int rank_;
  std::unique_ptr<EpollSleeper> epoll_;
  LinkSleeper sleeper_;
  AbortFlag abort_;
  bool failed_ = false;
  LinkShare share_;
  std::vector<Slot> slots_;
  bool few_;
  bool encrypted_;
  bool going_to_sleep_ = false;  // the last progress() may have run, so posts are written at once
  unsigned looks_ = 0;
  std::chrono::nanoseconds path_interval_;
  Deadline next_path_look_ = Deadline::after(std::chrono::nanoseconds(0));
  std::vector<std::size_t> dirty_;
  SelfLink self_;
};

/// The address that a rank publishes.
std::string encode(std::uint16_t port, const std::string& address) {
  return ByteWriter().put(port).put_text(address).take();
}

Result<Endpoint> decode(const std::string& part, int rank) {
  ByteReader reader(part);
  const auto port = reader.get<std::uint16_t>();
  std::string address = reader.get_text(kAddressCap);
  if (!reader.finished()) {
    return Status(Code::kTcpConnect,
                  "rank " + std::to_string(rank) + " published an unreadable tcp address", rank);
  }
  return Endpoint{std::move(address), port};
}

Result<std::unique_ptr<Mesh>> open(const OpenArgs& args) {
  // A failure here must not keep this rank from the exchange in which all others wait.
  auto sleeper = EpollSleeper::create();
  Result<Listener> listener =
      sleeper.ok() ? listen_tcp(args.address, 0) : Result<Listener>(sleeper.status());
  // If descriptors are lacking, all ranks hear that now, before any of them waits for a link.
  Result<std::vector<Fd>> room =
      listener.ok() ? hold_descriptors(args.size - 1) : Result<std::vector<Fd>>(listener.status());
  HCCL_ASSIGN_OR_RETURN(
      const std::vector<std::string> parts,
      agree(args, room.ok() ? Result<std::string>(encode(listener->port, args.address))
                            : Result<std::string>(room.status())));
  room = std::vector<Fd>();
  const Config config = args.config != nullptr ? *args.config : Config{};
  JoinArgs join_args{args.rank, {}, args.key, args.deadline, args.abort, nullptr};
  if (config.wire == Wire::kTls) {
    HCCL_ASSIGN_OR_RETURN(join_args.tls, TlsContext::create());
  }
  for (int rank = 0; rank < args.size; ++rank) {
    HCCL_ASSIGN_OR_RETURN(Endpoint endpoint, decode(parts[static_cast<std::size_t>(rank)], rank));
    join_args.ranks.push_back(std::move(endpoint));
  }
  HCCL_ASSIGN_OR_RETURN(std::vector<Connection> connections,
                        join(join_args, std::move(*listener), **sleeper));
  return std::unique_ptr<Mesh>(std::make_unique<TcpMesh>(args.rank, std::move(connections),
                                                         std::move(*sleeper), args.hosts, config));
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args) {
  auto mesh = tcp::open(args);
  if (!mesh.ok()) return mesh.status().with_context("opening the tcp transport");
  return mesh;
}

}  // namespace hccl::transport
