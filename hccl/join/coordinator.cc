#include "hccl/join/coordinator.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "hccl/join/host.h"
#include "hccl/join/membership.h"

namespace hccl::join {
namespace {

constexpr std::chrono::seconds kProofTime{5};
constexpr std::chrono::seconds kShortTime{1};  // without descriptors
constexpr std::uint64_t kListenerTag = 0;

// Connections without a proof may take this many descriptors; the process needs most of its
// descriptors itself.
std::size_t strangers_cap() {
  constexpr rlim_t kMost = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMost);
}

}  // namespace

// The coordinator's sockets: one epoll set, no blocking call but the one sleep.
class CoordinatorThread {
 public:
  CoordinatorThread(Listener listener, const RootInfo& info, const Config& config, Logger log,
                    std::unique_ptr<EpollSleeper> sleeper)
      : listener_(std::move(listener.fd)),
        info_(info),
        log_(std::move(log)),
        sleeper_(std::move(sleeper)),
        spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
        membership_(host_identity(), static_cast<std::uint32_t>(::getpid()), config.connect_timeout,
                    config.peer_timeout) {
    watch(listener_.get(), kListenerTag, EPOLLIN, EPOLL_CTL_ADD);
  }

  void run() {
    const auto over = [this] {
      turn();
      return stopping_.load(std::memory_order_acquire) || finished();
    };
    try {
      static_cast<void>(Waiter{.policy = kSleepAtOnce}.until(over, *sleeper_));
    } catch (...) {
      fail(caught());
    }
    done_.store(true, std::memory_order_release);
  }

  void stop() {
    stopping_.store(true, std::memory_order_release);
    sleeper_->ring();
  }
  bool done() const { return done_.load(std::memory_order_acquire); }

 private:
  struct Connection {
    Fd fd;
    Handshake handshake;
    Deadline proof = Deadline::after(kProofTime);
    std::string in = {};
    std::string out = {};
    bool closing = false;
  };

  bool finished() const { return membership_.finished() && connections_.empty(); }

  void watch(int fd, std::uint64_t tag, std::uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    ::epoll_ctl(sleeper_->epoll(), operation, fd, &event);
  }

  void turn() {
    epoll_event events[64];
    const int number = ::epoll_wait(sleeper_->epoll(), events, 64, 0);
    for (int i = 0; i < number; ++i) {
      const std::uint64_t tag = events[i].data.u64;
      if (tag == EpollSleeper::kWake) continue;
      if (tag == kListenerTag) {
        accept_some();
      } else {
        serve(static_cast<int>(tag), events[i].events);
      }
    }
    deliver(membership_.tick(Membership::Clock::now()));
    drop_silent_strangers();
    if (membership_.complete() || membership_.finished()) {
      // No further rank is expected.
      listener_.reset();
      while (drop_oldest_stranger()) continue;
    }
  }

  // Accepts no more at a time than may stay: each connection gets one turn in which its first bytes
  // are read.
  void accept_some() {
    for (std::size_t i = 0; i < (strangers_cap_ + 1) / 2; ++i) {
      auto fd = accept_one(listener_.get());
      // Out of descriptors: the stranger that has been silent longest makes room for this caller.
      if (!fd.ok() && drop_oldest_stranger()) fd = accept_one(listener_.get());
      if (!fd.ok()) {
        // All descriptors belong to ranks: the spare one turns this caller away.
        log_->warn("coordinator {}: {}", info_.name(), fd.status().message());
        spare_.reset();
        static_cast<void>(accept_one(listener_.get()));
        spare_ = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        give_up_if_short(fd.status());
        return;
      }
      short_.reset();
      if (!fd->valid()) return;
      const int number = ++last_connection_;
      watch(fd->get(), static_cast<std::uint64_t>(number), EPOLLIN, EPOLL_CTL_ADD);
      connections_.emplace(
          number, Connection{std::move(*fd), Handshake(Handshake::Side::kServer, info_.secret,
                                                       info_.id, "control")});
      strangers_.insert(number);
      if (strangers_.size() > strangers_cap_) drop_oldest_stranger();
    }
  }

  // A rank that is turned away tries again. Where there is no room for it for long, all ranks hear
  // why; those that were turned away hear it in the room of the others.
  void give_up_if_short(const Status& why) {
    if (!short_) short_ = Deadline::after(kShortTime);
    if (!short_->expired() || membership_.complete()) return;
    deliver(membership_.fail(why.with_context("the root, pid " + std::to_string(::getpid()) +
                                              ", cannot take in more ranks")));
    short_.reset();
  }

  bool drop_oldest_stranger() {
    if (strangers_.empty()) return false;
    end(*strangers_.begin());
    return true;
  }

  void drop_silent_strangers() {
    // Numbers grow with time, and all have the same patience.
    for (std::set<int>* waiting : {&strangers_, &proving_}) {
      while (!waiting->empty() && connections_.at(*waiting->begin()).proof.expired()) {
        end(*waiting->begin());
      }
    }
  }

  void serve(int number, std::uint32_t events) {
    const auto at = connections_.find(number);
    if (at == connections_.end()) return;
    if ((events & EPOLLOUT) != 0 && !flush(number, at->second)) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    char bytes[16384];
    for (;;) {
      const ssize_t got = ::recv(at->second.fd.get(), bytes, sizeof bytes, 0);
      if (got > 0) {
        at->second.in.append(bytes, static_cast<std::size_t>(got));
        if (!digest_input(number, at->second)) return;
        continue;
      }
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      end(number);
      return;
    }
  }

  // False when the connection is gone.
  bool digest_input(int number, Connection& connection) {
    for (;;) {
      if (!connection.handshake.finished()) {
        const std::size_t wants = connection.handshake.wants();
        if (connection.in.size() < wants) return true;
        auto reply = connection.handshake.step(std::string_view(connection.in).substr(0, wants));
        if (!reply.ok()) {
          log_->warn("coordinator {}: turned a stranger away: {}", info_.name(),
                     reply.status().message());
          end(number);
          return false;
        }
        strangers_.erase(number);
        if (connection.handshake.finished()) {
          proving_.erase(number);
        } else {
          proving_.insert(number);
        }
        connection.in.erase(0, wants);
        connection.out += *reply;
        if (!flush(number, connection)) return false;
        continue;
      }
      std::uint32_t length = 0;
      if (connection.in.size() < sizeof length) return true;
      std::memcpy(&length, connection.in.data(), sizeof length);
      if (length == 0 || length > membership_.cap(number)) {
        end(number);
        return false;
      }
      if (connection.in.size() < sizeof length + length) return true;
      const std::string frame = connection.in.substr(sizeof length, length);
      connection.in.erase(0, sizeof length + length);
      deliver(membership_.frame(number, frame, Membership::Clock::now()));
      if (connections_.count(number) == 0) return false;
    }
  }

  void deliver(const Membership::Outs& outs) {
    for (const auto& out : outs) {
      const auto at = connections_.find(out.connection);
      if (at == connections_.end()) continue;
      if (!out.frame.empty()) at->second.out += ByteWriter().put_text(out.frame).take();
      at->second.closing = at->second.closing || out.close;
      flush(out.connection, at->second);
    }
  }

  // Sends what the socket takes. False when the connection is gone.
  bool flush(int number, Connection& connection) {
    while (!connection.out.empty()) {
      const ssize_t sent =
          ::send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        connection.out.erase(0, static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        watch(connection.fd.get(), static_cast<std::uint64_t>(number), EPOLLIN | EPOLLOUT,
              EPOLL_CTL_MOD);
        return true;
      } else if (errno != EINTR) {
        end(number);
        return false;
      }
    }
    if (connection.closing) {
      end(number);
      return false;
    }
    watch(connection.fd.get(), static_cast<std::uint64_t>(number), EPOLLIN, EPOLL_CTL_MOD);
    return true;
  }

  // Tells the ranks why, as far as that can be done, and closes their lines.
  void fail(const Status& why) noexcept {
    try {
      deliver(membership_.fail(why.with_context("coordinator")));
    } catch (...) {  // a closed line says that the coordinator is gone
    }
    connections_.clear();
    listener_.reset();
  }

  void end(int number) {
    strangers_.erase(number);
    proving_.erase(number);
    connections_.erase(number);
    deliver(membership_.closed(number));
  }

  Fd listener_;
  RootInfo info_;
  Logger log_;
  std::unique_ptr<EpollSleeper> sleeper_;
  Fd spare_;
  Membership membership_;
  std::map<int, Connection> connections_;
  const std::size_t strangers_cap_ = strangers_cap();
  std::set<int> strangers_;  // connections that have not named this communicator yet
  std::set<int> proving_;    // connections that named it and still owe their proof
  int last_connection_ = 0;
  std::optional<Deadline> short_;  // since when descriptors are short
  std::atomic<bool> stopping_{false};
  std::atomic<bool> done_{false};
};

Coordinator::Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::start(RootInfo& info, const Config& config,
                                                        Logger log) {
  Result<Listener> listener(Status(Code::kUnavail, "no port"));
  for (int i = 0; i < info.ports; ++i) {
    const auto port = static_cast<std::uint16_t>(info.port == 0 ? 0 : info.port + i);
    listener = listen_tcp(info.address, port);
    if (listener.ok() || listener.status().code() != Code::kUnavail) break;
  }
  if (!listener.ok()) return listener.status();
  info.port = listener->port;
  info.ports = 1;
  HCCL_ASSIGN_OR_RETURN(auto sleeper, EpollSleeper::create());
  std::unique_ptr<Coordinator> made(new Coordinator);
  made->loop_ = std::make_unique<CoordinatorThread>(std::move(*listener), info, config,
                                                    std::move(log), std::move(sleeper));
  made->thread_ = std::thread([loop = made->loop_.get()] { loop->run(); });
  return made;
}

Coordinator::~Coordinator() {
  if (!thread_.joinable()) return;
  loop_->stop();
  thread_.join();
}

bool Coordinator::finished() const { return loop_->done(); }

}  // namespace hccl::join
