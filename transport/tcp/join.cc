#include "transport/tcp/join.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>

#include "hccl/base/error_text.h"
#include "transport/tcp/pending.h"

namespace hccl::transport::tcp {
namespace {

// The largest number of accepted connections without a proof, besides one a rank. Beyond it the
// oldest one is dropped.
constexpr std::size_t kPendingCap = 512;
// Pause before a refused connection is tried again, and after the descriptors ran out.
constexpr std::chrono::milliseconds kPause{20};
// How long this process may be without free descriptors; other threads may free some.
constexpr std::chrono::seconds kTrouble{1};
constexpr std::uint64_t kListener = EpollSleeper::kWake - 1;

class Joiner {
 public:
  Joiner(const JoinArgs& args, Listener listener, EpollSleeper& sleeper)
      : args_(args),
        listener_(std::move(listener)),
        sleeper_(sleeper),
        links_(args.ranks.size()),
        retry_(args.ranks.size()),
        reason_(args.ranks.size()) {
    const Key id = derive(args.key, "tcp mesh id");
    std::memcpy(id_.data(), id.data(), id_.size());
    missing_ = args.ranks.size() - 1;
    callers_ = missing_ - static_cast<std::size_t>(args.rank);
  }

  Result<std::vector<Connection>> run() {
    watch_listener();
    for (int peer = 0; peer < args_.rank; ++peer) connect(peer);
    while (missing_ > 0 && !args_.deadline.expired() && !over()) {
      // No thread rings here. Naps are short because handshakes have their own deadlines.
      const Waiter waiter{.deadline = args_.deadline, .timeout = kPause, .policy = kSleepAtOnce};
      static_cast<void>(waiter.until([this] { return turn(); }, sleeper_));
      expire();
    }
    for (const auto& pending : pending_) unwatch(pending->fd());
    if (listening_) unwatch(listener_.fd.get());
    if (missing_ == 0) return std::move(links_);
    if (args_.abort != nullptr && args_.abort->raised()) return args_.abort->reason();
    if (trouble_ && trouble_->until.expired()) return trouble_->why;
    return absent();
  }

 private:
  /// A lack of this process, and the time until which it may end.
  struct Trouble {
    Status why;
    Deadline until;
  };
  using Entry = std::list<std::unique_ptr<Pending>>::iterator;

  /// Handles what is ready. True if anything was.
  bool turn() {
    std::array<epoll_event, 64> events;
    const int count =
        ::epoll_wait(sleeper_.epoll(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
      if (tag == EpollSleeper::kWake) continue;
      if (tag == kListener) {
        accept_all();
        continue;
      }
      // The connection of an event may have been dropped in this round.
      const auto entry = std::find_if(pending_.begin(), pending_.end(), [&](const auto& pending) {
        return pending->fd() == static_cast<int>(tag);
      });
      if (entry != pending_.end()) step(entry);
    }
    return count > 0;
  }

  void watch(const Pending& pending, int operation) {
    epoll_event event{};
    event.events = pending.wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u64 = static_cast<std::uint64_t>(pending.fd());
    ::epoll_ctl(sleeper_.epoll(), operation, pending.fd(), &event);
  }
  void unwatch(int fd) { ::epoll_ctl(sleeper_.epoll(), EPOLL_CTL_DEL, fd, nullptr); }
  void watch_listener() {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kListener;
    ::epoll_ctl(sleeper_.epoll(), EPOLL_CTL_ADD, listener_.fd.get(), &event);
    listening_ = true;
  }

  static std::string purpose(int server) { return "tcp data to rank " + std::to_string(server); }

  Result<Connection> equip(Fd fd, TlsStream::Side side, int server) const {
    if (args_.tls == nullptr) return Connection(std::move(fd));
    HCCL_ASSIGN_OR_RETURN(
        TlsStream tls,
        TlsStream::create(args_.tls, side, fd.get(), tls_key(args_.key, id_, purpose(server))));
    return Connection(std::move(fd), std::move(tls));
  }

  void connect(int peer) {
    const Endpoint& to = args_.ranks[static_cast<std::size_t>(peer)];
    const std::string& from = args_.ranks[static_cast<std::size_t>(args_.rank)].address;
    auto fd = start_connect_tcp(to.address, to.port, from);
    if (!fd.ok()) return again(peer, fd.status());
    auto connection = equip(std::move(*fd), TlsStream::Side::kClient, peer);
    if (!connection.ok()) return again(peer, connection.status());
    auto pending = std::make_unique<Pending>(
        std::move(*connection), peer,
        Handshake(Handshake::Side::kClient, args_.key, id_, purpose(peer)), args_.deadline);
    pending->wants_write = true;
    watch(*pending, EPOLL_CTL_ADD);
    pending_.push_back(std::move(pending));
    found_room();
    std::string& reason = reason_[static_cast<std::size_t>(peer)];
    if (reason.empty()) reason = "it does not answer";
  }

  void note(const Status& why) {
    if (why.code() == Code::kSyscall && !trouble_) trouble_ = {why, Deadline::after(kTrouble)};
  }
  /// A descriptor was free. That shows nothing while this rank closes connections to make room:
  /// then only a new link ends the trouble.
  void found_room() {
    if (!made_room_) trouble_.reset();
  }
  bool over() const {
    return (args_.abort != nullptr && args_.abort->raised()) ||
           (trouble_ && trouble_->until.expired());
  }

  void again(int peer, const Status& why) {
    note(why);
    reason_[static_cast<std::size_t>(peer)] = why.message();
    retry_[static_cast<std::size_t>(peer)] = Deadline::after(kPause);
  }

  void accept_all() {
    for (;;) {
      auto fd = accept_one(listener_.fd.get());
      if (!fd.ok()) {
        // Probably no descriptor is free. If no stranger holds one, other threads may free some.
        note(fd.status());
        if (make_room()) continue;
        unwatch(listener_.fd.get());
        listening_ = false;
        listen_again_ = Deadline::after(kPause);
        return;
      }
      if (!fd->valid()) return;
      found_room();
      auto connection = equip(std::move(*fd), TlsStream::Side::kServer, args_.rank);
      if (!connection.ok()) continue;
      if (strangers_ >= kPendingCap + links_.size()) drop_oldest_stranger();
      auto pending = std::make_unique<Pending>(
          std::move(*connection), -1,
          Handshake(Handshake::Side::kServer, args_.key, id_, purpose(args_.rank)),
          Deadline::after(kHandshakeTime));
      pending->stage = Pending::Stage::kProving;
      watch(*pending, EPOLL_CTL_ADD);
      pending_.push_back(std::move(pending));
      ++strangers_;
    }
  }

  /// Closes the oldest connection that is a stranger's. If more callers are here than ranks are to
  /// come, that is the oldest of all. False if there is none.
  bool make_room() {
    const bool crowd = strangers_ > callers_;
    const auto oldest = std::find_if(pending_.begin(), pending_.end(), [&](const auto& pending) {
      return pending->peer < 0 && (crowd || pending->silent());
    });
    if (oldest == pending_.end()) return false;
    drop(oldest, Status());
    return made_room_ = true;
  }

  void drop_oldest_stranger() {
    const auto oldest = std::find_if(pending_.begin(), pending_.end(),
                                     [](const auto& pending) { return pending->peer < 0; });
    if (oldest != pending_.end()) drop(oldest, Status());
  }

  void drop(Entry entry, const Status& why) {
    unwatch((*entry)->fd());
    const int peer = (*entry)->peer;
    pending_.erase(entry);
    if (peer >= 0) {
      again(peer, why);
    } else {
      --strangers_;
    }
  }

  void expire() {
    const Status silent(Code::kTimeout, "no answer to the handshake");
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      const auto current = entry++;
      if ((*current)->deadline.expired()) drop(current, silent);
    }
    for (int peer = 0; peer < args_.rank; ++peer) {
      auto& due = retry_[static_cast<std::size_t>(peer)];
      if (!due.has_value() || !due->expired()) continue;
      due.reset();
      connect(peer);
    }
    if (!listening_ && listen_again_.expired()) watch_listener();
  }

  /// Advances one connection as far as possible.
  void step(Entry entry) {
    Pending& pending = **entry;
    const Status status = advance(pending);
    if (!status.ok()) return drop(entry, status);
    if (pending.stage == Pending::Stage::kGreeting && pending.in.size() == sizeof(Hello)) {
      return greet(entry);
    }
    const bool wants_write = pending.proves_by_tls() ? pending.connection.tls()->wants() == POLLOUT
                                                     : !pending.out.empty();
    if (wants_write != pending.wants_write) {
      pending.wants_write = wants_write;
      watch(pending, EPOLL_CTL_MOD);
    }
  }

  /// Success: nothing more can be done at the moment, or the whole hello has arrived.
  Status advance(Pending& pending) {
    if (pending.stage == Pending::Stage::kConnecting) {
      HCCL_RETURN_IF_ERROR(connect_result(pending.fd()));
      pending.stage = Pending::Stage::kProving;
      if (!pending.proves_by_tls()) pending.out = pending.handshake.first();
    }
    for (;;) {
      if (pending.proves_by_tls()) {
        HCCL_RETURN_IF_ERROR(pending.connection.tls()->handshake());
        if (!pending.connection.tls()->finished()) return {};
        begin_greeting(pending);
      }
      HCCL_RETURN_IF_ERROR(flush(pending));
      const std::size_t wanted =
          pending.stage == Pending::Stage::kProving ? pending.handshake.wants() : sizeof(Hello);
      // Reads no byte beyond this stage: the following bytes belong to the next stage.
      HCCL_RETURN_IF_ERROR(fill(pending, wanted));
      if (pending.in.size() < wanted) return {};
      if (pending.stage == Pending::Stage::kGreeting) return {};
      HCCL_ASSIGN_OR_RETURN(const std::string reply, pending.handshake.step(pending.in));
      pending.stepped = true;
      pending.in.clear();
      pending.out += reply;
      if (pending.handshake.finished()) begin_greeting(pending);
    }
  }

  void begin_greeting(Pending& pending) {
    pending.stage = Pending::Stage::kGreeting;
    if (pending.peer >= 0) pending.out += hello_to(pending.peer);
  }

  Status flush(Pending& pending) {
    while (!pending.out.empty()) {
      const iovec piece{pending.out.data(), pending.out.size()};
      const auto sent = pending.connection.write({&piece, 1});
      if (!sent.ok()) return Status(Code::kTcpConnect, sent.status().message());
      if (*sent == 0) return {};
      pending.out.erase(0, *sent);
    }
    return {};
  }

  Status fill(Pending& pending, std::size_t wanted) {
    while (pending.in.size() < wanted) {
      std::array<char, 128> bytes;
      const iovec piece{bytes.data(), std::min(bytes.size(), wanted - pending.in.size())};
      const auto got = pending.connection.read({&piece, 1});
      if (!got.ok()) {
        const std::string& why = got.status().message();
        return Status(Code::kTcpConnect,
                      why.empty() ? "it closed the connection while joining" : why);
      }
      if (*got == 0) return {};
      pending.in.append(bytes.data(), *got);
    }
    return {};
  }

  std::string hello_to(int peer) const {
    return ByteWriter()
        .put(Hello{kMagic, kVersion, static_cast<std::uint32_t>(args_.rank),
                   static_cast<std::uint32_t>(peer)})
        .take();
  }

  /// The whole hello of an authenticated peer has arrived: takes the connection into the mesh, or
  /// drops it.
  void greet(Entry entry) {
    Pending& pending = **entry;
    const Hello hello = ByteReader(pending.in).get<Hello>();
    if (hello.magic != kMagic || hello.version != kVersion) {
      return drop(entry, Status(Code::kTcpConnect, "it speaks another version of the protocol"));
    }
    const bool expected = pending.peer >= 0 ? hello.from == static_cast<std::uint32_t>(pending.peer)
                                            : hello.from > static_cast<std::uint32_t>(args_.rank) &&
                                                  hello.from < links_.size();
    if (!expected || hello.to != static_cast<std::uint32_t>(args_.rank)) {
      return drop(entry, Status(Code::kTcpConnect, "another rank answered"));
    }
    Connection& link = links_[hello.from];
    if (link.valid()) return drop(entry, Status(Code::kTcpConnect, "the rank has joined already"));
    if (pending.peer < 0) {
      pending.out = hello_to(static_cast<int>(hello.from));
      const Status status = flush(pending);
      // Sixteen bytes always fit into an empty socket buffer, unless the connection is gone.
      if (!status.ok() || !pending.out.empty()) return drop(entry, status);
      --strangers_;
      --callers_;
    }
    unwatch(pending.fd());
    link = std::move(pending.connection);
    pending_.erase(entry);
    --missing_;
    trouble_.reset();
    made_room_ = false;
  }

  Status absent() const {
    std::string names;
    std::string reasons;
    int first = Status::kNobody;
    for (std::size_t peer = 0; peer < links_.size(); ++peer) {
      if (peer == static_cast<std::size_t>(args_.rank) || links_[peer].valid()) continue;
      if (first == Status::kNobody) first = static_cast<int>(peer);
      names += (names.empty() ? "" : ", ") + std::to_string(peer);
      if (!reason_[peer].empty()) {
        reasons += "; rank " + std::to_string(peer) + " at " +
                   endpoint_text(args_.ranks[peer].address, args_.ranks[peer].port) + ": " +
                   reason_[peer];
      }
    }
    return Status(Code::kTimeout,
                  "rank " + std::to_string(args_.rank) + " has no connection to " +
                      (missing_ == 1 ? "rank " : "ranks ") + names + " after the time to connect" +
                      reasons,
                  first);
  }

  const JoinArgs& args_;
  Listener listener_;
  EpollSleeper& sleeper_;
  Uuid id_{};
  std::vector<Connection> links_;
  std::size_t missing_ = 0;  ///< links
  std::size_t callers_ = 0;  ///< ranks that have to call this one, and have no link yet
  std::list<std::unique_ptr<Pending>> pending_;
  std::size_t strangers_ = 0;  ///< accepted ones in pending_
  std::vector<std::optional<Deadline>> retry_;
  std::vector<std::string> reason_;  ///< why the last try failed
  std::optional<Trouble> trouble_;
  bool made_room_ = false;  ///< by closing a connection, since the last link
  bool listening_ = false;
  Deadline listen_again_ = Deadline::never();
};

}  // namespace

Result<std::vector<Fd>> hold_descriptors(int number) {
  std::vector<Fd> held;
  while (held.size() < static_cast<std::size_t>(number)) {
    Fd each = held.empty() ? Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC))
                           : Fd(::fcntl(held.front().get(), F_DUPFD_CLOEXEC, 0));
    if (!each.valid()) {
      return Status(Code::kSyscall, std::to_string(number) + " more descriptors are needed, " +
                                        std::to_string(held.size()) +
                                        " are free: " + error_text(errno));
    }
    held.push_back(std::move(each));
  }
  return held;
}

Result<std::vector<Connection>> join(const JoinArgs& args, Listener listener,
                                     EpollSleeper& sleeper) {
  return Joiner(args, std::move(listener), sleeper).run();
}

}  // namespace hccl::transport::tcp
