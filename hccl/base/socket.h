// Sockets: TCP and UNIX, with deadlines. Everything is non-blocking and close-on-exec; SIGPIPE
// never happens (MSG_NOSIGNAL).
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "hccl/base/waiter.h"

namespace hccl {

/// Returns kSyscall with a text for `what` and errno.
Status syscall_failure(const std::string& what);

struct SockAddr {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};
/// Reads an IPv4 or IPv6 address without a zone. Stops at a NUL. kPara for any other text.
Result<SockAddr> parse_address(const std::string& address, std::uint16_t port = 0);
/// Returns the shortest text of an IPv4 or IPv6 address, without its port.
std::string address_text(const sockaddr* address);

/// Returns "10.0.0.1:6000" or "[::1]:6000".
std::string endpoint_text(std::string_view address, std::uint16_t port);

struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};
/// The two ends of a socket of IPv4 or IPv6.
Result<Endpoint> local_endpoint(int fd);
Result<Endpoint> peer_endpoint(int fd);

struct Listener {
  Fd fd;
  std::uint16_t port = 0;
};
/// Listens on one address, or on all addresses ("0.0.0.0" or "::"). For port 0, takes a free port.
/// kUnavail (EI0019): the port is taken. kNotFound: no interface has the address.
Result<Listener> listen_tcp(const std::string& address, std::uint16_t port);
/// Starts a connection. Then poll for writability and call connect_error(). `from` is the local
/// address to bind to, or empty. `error` gets the errno of a connection that fails at once.
Result<Fd> start_connect_tcp(const std::string& address, std::uint16_t port,
                             const std::string& from, int* error = nullptr);
/// Returns 0 once a started connection is established; otherwise the errno of the reason.
int connect_error(int fd);
/// Accepts one connection; an invalid Fd if none is waiting. TCP sockets get TCP_NODELAY.
Result<Fd> accept_one(int listener);
/// The most accepted connections that have not yet proved to be a rank's: a quarter of the
/// descriptors that this process may have, and at most 1,024. A limit of each listener.
std::size_t strangers_cap();

/// UNIX sockets have pathnames, because the kernel checks no permissions of abstract names.
Result<Fd> listen_unix(const std::string& path);
Result<Fd> connect_unix(const std::string& path, Deadline deadline);

/// Blocks until all bytes are sent or received. Fails with kTimeout, or with kTcpTransfer if the
/// connection has ended.
Status send_all(int fd, std::string_view bytes, Deadline deadline);
Status recv_all(int fd, std::span<char> bytes, Deadline deadline);
/// Sends a frame: a 32-bit length, then the bytes.
Status send_frame(int fd, std::string_view bytes, Deadline deadline);
/// Receives a frame. kTcpTransfer: the frame is longer than `cap` bytes; nothing was allocated.
Result<std::string> recv_frame(int fd, std::size_t cap, Deadline deadline);
/// Sends file descriptors with one message byte (SCM_RIGHTS, at most 253 at a time).
Status send_fds(int socket, std::span<const int> fds, Deadline deadline);
Result<std::vector<Fd>> recv_fds(int socket, std::size_t count, Deadline deadline);

/// Blocks until poll(2) reports one of the events, or fails with kTimeout.
Status wait_fd(int fd, short events, Deadline deadline);

/// Calls epoll_ctl(2) with `tag` as the event's data. Returns false on failure.
bool watch_fd(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t tag = 0);

/// A sleeper that wakes when its epoll set has an event. The set can be nested in another epoll
/// set.
class PolledSleeper : public Sleeper {
 public:
  virtual int epoll() const = 0;
};

/// Sleeps on an epoll set that includes a wake-up descriptor. Add further descriptors to epoll();
/// any thread may ring(). A readable descriptor that progress() did not drain ends the sleep at
/// once.
class EpollSleeper final : public PolledSleeper {
 public:
  static Result<std::unique_ptr<EpollSleeper>> create();

  int epoll() const override { return epoll_.get(); }
  /// The wake-up's descriptor: an eventfd that may be handed to other processes. Other code must
  /// not add it to an epoll set.
  int wake_fd() const { return wake_.get(); }
  void ring();
  std::uint32_t prepare() override { return 0; }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override;
  void awake() override;
  /// epoll_event.data.u64 of the wake-up; no other descriptor may have this value.
  static constexpr std::uint64_t kWake = ~std::uint64_t{0};

 private:
  EpollSleeper(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  Fd epoll_;
  Fd wake_;
  bool taken_ = false;  // another file has the number of the epoll set
};

}  // namespace hccl
