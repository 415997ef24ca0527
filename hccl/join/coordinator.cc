#include "hccl/join/coordinator.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "hccl/base/auth.h"
#include "hccl/base/caught.h"
#include "hccl/base/error_text.h"
#include "hccl/base/process.h"
#include "hccl/join/line.h"

namespace hccl::join {
namespace {

constexpr std::chrono::seconds kProofTime{5};
constexpr std::chrono::seconds kSureTime{1};   // for a proof, also in a crowd
constexpr std::chrono::seconds kShortTime{1};  // without descriptors
constexpr std::uint64_t kListenerTag = 0;
constexpr int kEvents = 64;  // in one turn

// The largest number of connections of each of two kinds without a proof: those that have named the
// job's secret, and the others. The process needs most of its descriptors for other uses.
std::size_t strangers_cap() {
  constexpr rlim_t kMost = 512;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::clamp<rlim_t>(limit.rlim_cur / 8, 1, kMost);
}

Fd open_spare() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

// The coordinator's sockets: one epoll set. No call blocks except one sleep.
class CoordinatorThread {
 public:
  CoordinatorThread(Listener listener, const RootInfo& info, const Config& config, Logger log,
                    std::unique_ptr<EpollSleeper> sleeper, Fd spare,
                    std::shared_ptr<const TlsContext> context, Claimants claimants,
                    const std::string& boot)
      : listener_(std::move(listener.fd)),
        info_(info),
        log_(std::move(log)),
        sleeper_(std::move(sleeper)),
        context_(std::move(context)),
        spare_(std::move(spare)),
        membership_(host_identity(boot), static_cast<std::uint32_t>(::getpid()),
                    config.connect_timeout, config.peer_timeout, start_of(::getpid()),
                    std::move(claimants)) {
    watch(listener_.get(), kListenerTag, EPOLLIN, EPOLL_CTL_ADD);
  }

  void run() {
    const auto over = [this] {
      const std::lock_guard lock(mutex_);
      turn();
      return stopping_.load(std::memory_order_acquire) || finished();
    };
    try {
      static_cast<void>(Waiter{.policy = kSleepAtOnce}.until(over, *sleeper_));
    } catch (...) {
      fail(caught());
    }
    {
      const std::lock_guard lock(mutex_);
      crypto_leaves_thread();
    }
    done_.store(true, std::memory_order_release);
  }

  void stop() {
    stopping_.store(true, std::memory_order_release);
    sleeper_->ring();
  }
  bool done() const { return done_.load(std::memory_order_acquire); }
  const Uuid& id() const { return info_.id; }

  void give_up(const Status& why) {
    const std::lock_guard lock(mutex_);
    deliver(membership_.tick(Membership::Clock::now()));  // the thread may not have begun yet
    if (membership_.complete()) return;
    deliver(membership_.fail(why));
    // Each rank needs a connection to hear it, one after the other.
    gave_up_ = true;
    spare_.reset();
  }

  void hold() { mutex_.lock(); }
  void release() { mutex_.unlock(); }
  void abandon() {
    for (auto& [number, connection] : connections_) connection.line.abandon();
    listener_.reset();
  }

 private:
  struct Connection {
    Line line;
    Deadline proof = Deadline::after(kProofTime);
    Deadline sure = Deadline::after(kSureTime);
    bool closing = false;
    bool deaf = false;  // takes no more bytes; bytes that it sent before are still read
  };

  bool finished() const { return membership_.finished() && connections_.empty(); }

  void watch(int fd, std::uint64_t tag, std::uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    ::epoll_ctl(sleeper_->epoll(), operation, fd, &event);
  }

  void turn() {
    epoll_event events[kEvents];
    const int number = ::epoll_wait(sleeper_->epoll(), events, kEvents, 0);
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
      while (drop_oldest(strangers_)) continue;
    }
  }

  // Accepts fewer connections in a turn than are served in it, so that each is heard before newer
  // ones drive it out.
  void accept_some() {
    for (std::size_t i = 0; i < std::min<std::size_t>(kEvents / 2, (strangers_cap_ + 1) / 2); ++i) {
      auto fd = accept_one(listener_.get());
      // No descriptor is free: the oldest stranger makes room for this caller.
      if (!fd.ok() && (drop_oldest(strangers_) || drop_late())) fd = accept_one(listener_.get());
      if (!fd.ok()) {
        // Ranks hold all descriptors: the spare descriptor serves to turn this caller away.
        if (!short_) log_->warn("coordinator {}: {}", info_.name(), fd.status().message());
        spare_.reset();
        static_cast<void>(accept_one(listener_.get()));
        if (!gave_up_) spare_ = open_spare();
        give_up_if_short(fd.status());
        return;
      }
      short_.reset();
      if (!fd->valid()) return;
      const int number = ++last_connection_;
      watch(fd->get(), static_cast<std::uint64_t>(number), EPOLLIN, EPOLL_CTL_ADD);
      connections_.emplace(number,
                           Connection{Line(std::move(*fd), Line::Side::kServer, context_, info_)});
      strangers_.insert(number);
      if (strangers_.size() > strangers_cap_) drop_oldest(strangers_);
    }
  }

  // A rank that is turned away tries again. If there is no room for a long time, all ranks get an
  // error with the reason. The ranks that were turned away get it when the other ranks' connections
  // have made room.
  void give_up_if_short(const Status& why) {
    if (!short_) short_ = Deadline::after(kShortTime);
    if (!short_->expired() || membership_.complete()) return;
    deliver(membership_.fail(why.with_context("the root, pid " + std::to_string(::getpid()) +
                                              ", cannot take in more ranks")));
    short_.reset();
  }

  bool drop_oldest(const std::set<int>& of) {
    if (of.empty()) return false;
    end(*of.begin());
    return true;
  }

  // Drops the oldest connection that has named the secret, if its time is over.
  bool drop_late() {
    return !proving_.empty() && connections_.at(*proving_.begin()).sure.expired() &&
           drop_oldest(proving_);
  }

  void drop_silent_strangers() {
    // The connections' numbers grow with time, and all have the same time for their proof.
    for (const std::set<int>* waiting : {&strangers_, &proving_}) {
      while (!waiting->empty() && connections_.at(*waiting->begin()).proof.expired()) {
        drop_oldest(*waiting);
      }
    }
  }

  void serve(int number, std::uint32_t events) {
    const auto at = connections_.find(number);
    if (at == connections_.end()) return;
    if (!at->second.line.proved() && !prove(number, at->second)) return;
    if ((events & EPOLLOUT) != 0 && !flush(number, at->second)) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    for (;;) {
      const auto got = at->second.line.fill();
      if (!got.ok()) return end(number, got.status());
      if (*got == 0 || !take_frames(number, at->second)) return;
    }
  }

  // False if the proof is not complete.
  bool prove(int number, Connection& connection) {
    // Those that named the secret have some time for their proof. Until then no more get an answer.
    if (strangers_.count(number) != 0 && proving_.size() >= strangers_cap_ && !drop_late()) {
      end(number);  // a rank tries again
      return false;
    }
    const Status status = connection.line.prove();
    if (!status.ok()) {
      if (status.code() != Code::kTcpTransfer) {
        log_->warn("coordinator {}: turned a stranger away: {}", info_.name(), status.message());
      }
      end(number);
      return false;
    }
    if (connection.line.named() && strangers_.erase(number) != 0) proving_.insert(number);
    if (!connection.line.proved()) {
      std::uint32_t events = EPOLLIN;
      if (connection.line.wants() == POLLOUT) events |= EPOLLOUT;
      watch(connection.line.fd(), static_cast<std::uint64_t>(number), events, EPOLL_CTL_MOD);
      return false;
    }
    strangers_.erase(number);
    proving_.erase(number);
    return true;
  }

  // False if the connection is gone.
  bool take_frames(int number, Connection& connection) {
    for (;;) {
      const auto frame = connection.line.next(membership_.cap(number));
      if (!frame.ok()) {
        end(number, frame.status());
        return false;
      }
      if (!frame->has_value()) return true;
      deliver(membership_.frame(number, **frame, Membership::Clock::now()));
      if (connections_.count(number) == 0) return false;
    }
  }

  void deliver(const Membership::Outs& outs) {
    for (const auto& out : outs) {
      const auto at = connections_.find(out.connection);
      if (at == connections_.end()) continue;
      if (!out.frame.empty() && !at->second.deaf) at->second.line.put(out.frame);
      at->second.closing = at->second.closing || out.close;
      flush(out.connection, at->second);
    }
  }

  // Sends as much as the socket takes. False if the connection is gone.
  bool flush(int number, Connection& connection) {
    if (connection.deaf && !connection.closing) return true;
    const Status sent = connection.line.flush();
    if (!sent.ok() && !connection.closing) {
      // The peer may have sent the reason for its end. So its bytes are still read; shutdown() puts
      // an end behind them.
      connection.deaf = true;
      ::shutdown(connection.line.fd(), SHUT_RDWR);
      watch(connection.line.fd(), static_cast<std::uint64_t>(number), EPOLLIN, EPOLL_CTL_MOD);
      return true;
    }
    if (!sent.ok()) {
      end(number, sent);
      return false;
    }
    if (connection.line.unsent()) {
      watch(connection.line.fd(), static_cast<std::uint64_t>(number), EPOLLIN | EPOLLOUT,
            EPOLL_CTL_MOD);
      return true;
    }
    if (connection.closing) {
      end(number);
      return false;
    }
    watch(connection.line.fd(), static_cast<std::uint64_t>(number), EPOLLIN, EPOLL_CTL_MOD);
    return true;
  }

  // Tells the ranks the reason, as far as possible, and closes their lines.
  void fail(const Status& why) noexcept {
    try {
      deliver(membership_.fail(why.with_context("coordinator")));
    } catch (...) {  // NOLINT(bugprone-empty-catch): a closed line says it, too
    }
    connections_.clear();
    listener_.reset();
  }

  void end(int number, const Status& why = {}) {
    strangers_.erase(number);
    proving_.erase(number);
    // A rank of this process may end the process as soon as its line is closed.
    const auto closes_last = connections_.extract(number);
    const bool corrupted = why.code() == Code::kRemote;
    deliver(membership_.closed(number, corrupted ? why.message() : std::string()));
  }

  std::mutex mutex_;  // held in a turn, and around a fork
  Fd listener_;
  RootInfo info_;
  Logger log_;
  std::unique_ptr<EpollSleeper> sleeper_;
  std::shared_ptr<const TlsContext> context_;
  Fd spare_;
  Membership membership_;
  std::map<int, Connection> connections_;
  const std::size_t strangers_cap_ = strangers_cap();
  // Connections without a proof, the oldest first. Anybody may repeat a recorded first message,
  // which names the secret.
  std::set<int> strangers_;  // that have not named this job's secret yet
  std::set<int> proving_;    // that have
  int last_connection_ = 0;
  std::optional<Deadline> short_;  // set while descriptors are short
  bool gave_up_ = false;           // for this process's own lack
  std::atomic<bool> stopping_{false};
  std::atomic<bool> done_{false};
};

Coordinator::Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::start(RootInfo& info, const Config& config,
                                                        Logger log, Claimants claimants,
                                                        Result<std::string> boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
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
  Fd spare = open_spare();
  if (!spare.valid()) return Status(Code::kSyscall, "open /dev/null: " + error_text(errno));
  HCCL_ASSIGN_OR_RETURN(auto context, TlsContext::create());
  std::unique_ptr<Coordinator> made(new Coordinator);
  made->loop_ = std::make_unique<CoordinatorThread>(
      std::move(*listener), info, config, std::move(log), std::move(sleeper), std::move(spare),
      std::move(context), std::move(claimants), *boot);
  made->thread_ = Thread("hccl-coord", [loop = made->loop_.get()] { loop->run(); });
  return made;
}

Coordinator::~Coordinator() {
  if (!thread_.started()) return;
  loop_->stop();
  thread_.join();
}

void Coordinator::give_up(const Status& why) { loop_->give_up(why); }
const Uuid& Coordinator::id() const { return loop_->id(); }
bool Coordinator::finished() const { return loop_->done(); }

void Coordinator::hold() { loop_->hold(); }
void Coordinator::release() { loop_->release(); }
void Coordinator::abandon() { loop_->abandon(); }

}  // namespace hccl::join
