#include "hccl/base/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "hccl/base/bytes.h"
#include "hccl/base/error_text.h"

namespace hccl {
namespace {

Result<SockAddr> parse_path(const std::string& path) {
  SockAddr out;
  auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
  if (path.empty() || path.size() >= sizeof un->sun_path) {
    return Status(Code::kPara, "socket path \"" + path + "\" is empty or too long");
  }
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
  out.length = sizeof *un;
  return out;
}

Result<Fd> open_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return syscall_failure("socket");
  return fd;
}

void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails harmlessly on UNIX sockets
}

}  // namespace

Status syscall_failure(const std::string& what) {
  return Status(Code::kSyscall, what + ": " + error_text(errno));
}

std::string endpoint_text(std::string_view address, std::uint16_t port) {
  const bool v6 = address.find(':') != std::string_view::npos;
  return (v6 ? "[" + std::string(address) + "]" : std::string(address)) + ":" +
         std::to_string(port);
}

Result<SockAddr> parse_address(const std::string& address, std::uint16_t port) {
  SockAddr out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
    return out;
  }
  if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.length = sizeof *v6;
    return out;
  }
  return Status(Code::kPara, "\"" + address + "\" is not an IP address");
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  const bool is_v4 = address->sa_family == AF_INET;
  ::inet_ntop(address->sa_family, is_v4 ? static_cast<const void*>(&v4->sin_addr) : &v6->sin6_addr,
              text, sizeof text);
  return text;
}

Result<Listener> listen_tcp(const std::string& address, std::uint16_t port) {
  HCCL_ASSIGN_OR_RETURN(SockAddr local, parse_address(address, port));
  HCCL_ASSIGN_OR_RETURN(Fd fd, open_socket(local.family()));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), local.get(), local.length) != 0) {
    const std::string where = endpoint_text(address, port);
    if (errno == EADDRINUSE)
      return Status(Code::kUnavail, "EI0019: " + where + " is in use already");
    if (errno == EADDRNOTAVAIL) return Status(Code::kNotFound, "no interface has " + where);
    return syscall_failure("bind " + where);
  }
  if (::listen(fd.get(), 4096) != 0) return syscall_failure("listen");
  HCCL_ASSIGN_OR_RETURN(const Endpoint bound, local_endpoint(fd.get()));
  return Listener{std::move(fd), bound.port};
}

Result<Fd> start_connect_tcp(const std::string& address, std::uint16_t port,
                             const std::string& from, int* error) {
  HCCL_ASSIGN_OR_RETURN(SockAddr peer, parse_address(address, port));
  HCCL_ASSIGN_OR_RETURN(Fd fd, open_socket(peer.family()));
  if (!from.empty()) {
    HCCL_ASSIGN_OR_RETURN(SockAddr local, parse_address(from, 0));
    const int on =
        1;  // the port is chosen at connect, so thousands of connections do not exhaust the range
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (local.family() == peer.family() && ::bind(fd.get(), local.get(), local.length) != 0) {
      return syscall_failure("bind " + from);
    }
  }
  no_delay(fd.get());
  if (::connect(fd.get(), peer.get(), peer.length) != 0 && errno != EINPROGRESS) {
    if (error != nullptr) *error = errno;
    return Status(Code::kTcpConnect,
                  "connect to " + endpoint_text(address, port) + ": " + error_text(errno));
  }
  return fd;
}

namespace {

Result<Endpoint> endpoint(int fd, int (*of)(int, sockaddr*, socklen_t*)) {
  SockAddr its;
  its.length = sizeof its.storage;
  if (of(fd, its.get(), &its.length) != 0) return syscall_failure("the address of a socket");
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&its.storage);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&its.storage);
  return Endpoint{address_text(its.get()),
                  ntohs(its.family() == AF_INET ? v4->sin_port : v6->sin6_port)};
}

}  // namespace

Result<Endpoint> local_endpoint(int fd) { return endpoint(fd, ::getsockname); }
Result<Endpoint> peer_endpoint(int fd) { return endpoint(fd, ::getpeername); }

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Result<Fd> accept_one(int listener) {
  for (;;) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      no_delay(fd.get());
      return fd;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Fd();
    const int error = errno;
    // If no descriptor is free, accept() fails even if no connection waits.
    pollfd waiting{listener, POLLIN, 0};
    if ((error == EMFILE || error == ENFILE) && ::poll(&waiting, 1, 0) == 0) return Fd();
    return Status(Code::kSyscall, "accept: " + error_text(error));
  }
}

std::size_t strangers_cap() {
  constexpr rlim_t kMost = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMost);
}

Result<Fd> listen_unix(const std::string& path) {
  HCCL_ASSIGN_OR_RETURN(SockAddr local, parse_path(path));
  HCCL_ASSIGN_OR_RETURN(Fd fd, open_socket(AF_UNIX));
  if (::bind(fd.get(), local.get(), local.length) != 0) return syscall_failure("bind " + path);
  if (::listen(fd.get(), 4096) != 0) return syscall_failure("listen " + path);
  return fd;
}

Result<Fd> connect_unix(const std::string& path, Deadline deadline) {
  HCCL_ASSIGN_OR_RETURN(SockAddr peer, parse_path(path));
  HCCL_ASSIGN_OR_RETURN(Fd fd, open_socket(AF_UNIX));
  while (::connect(fd.get(), peer.get(), peer.length) != 0) {
    // EAGAIN: the listener's backlog is full at the moment.
    if (errno != EAGAIN && errno != EINTR) return syscall_failure("connect to " + path);
    if (deadline.expired()) return Status(Code::kTimeout, "connect to " + path + ": no answer");
    nap(std::chrono::milliseconds(1), deadline);
  }
  return fd;
}

Status wait_fd(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return syscall_failure("poll");
    if (deadline.expired()) return Status(Code::kTimeout, "no answer in time");
  }
}

Status send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HCCL_RETURN_IF_ERROR(wait_fd(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return io_failure("send", errno);
    }
  }
  return {};
}

Status recv_all(int fd, std::span<char> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Status(Code::kTcpTransfer, "the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HCCL_RETURN_IF_ERROR(wait_fd(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return io_failure("recv", errno);
    }
  }
  return {};
}

Status send_frame(int fd, std::string_view bytes, Deadline deadline) {
  return send_all(fd, ByteWriter().put_text(bytes).take(), deadline);
}

Result<std::string> recv_frame(int fd, std::size_t cap, Deadline deadline) {
  std::uint32_t length = 0;
  HCCL_RETURN_IF_ERROR(recv_all(fd, {reinterpret_cast<char*>(&length), sizeof length}, deadline));
  if (length > cap) {
    return Status(Code::kTcpTransfer, "a frame of " + std::to_string(length) +
                                          " bytes, more than the " + std::to_string(cap) +
                                          " allowed");
  }
  std::string bytes(length, '\0');
  HCCL_RETURN_IF_ERROR(recv_all(fd, bytes, deadline));
  return bytes;
}

namespace {
constexpr std::size_t kFdsPerMessage = 253;  // SCM_MAX_FD
}

Status send_fds(int socket, std::span<const int> fds, Deadline deadline) {
  while (!fds.empty()) {
    const auto batch = fds.first(std::min(fds.size(), kFdsPerMessage));
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(batch.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(batch.size_bytes());
    std::memcpy(CMSG_DATA(header), batch.data(), batch.size_bytes());
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) == 1) {
      fds = fds.subspan(batch.size());
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HCCL_RETURN_IF_ERROR(wait_fd(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return io_failure("handing over file descriptors", errno);
    }
  }
  return {};
}

Result<std::vector<Fd>> recv_fds(int socket, std::size_t count, Deadline deadline) {
  std::vector<Fd> fds;
  while (fds.size() < count) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got == 0) return Status(Code::kTcpTransfer, "the peer closed the connection");
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        HCCL_RETURN_IF_ERROR(wait_fd(socket, POLLIN, deadline));
      } else if (errno != EINTR) {
        return io_failure("receiving file descriptors", errno);
      }
      continue;
    }
    const std::size_t before = fds.size();
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t number = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < number; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        fds.emplace_back(fd);
      }
    }
    // Truncation means that this process has reached its limit of descriptors.
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return Status(Code::kSyscall, "taking over file descriptors: " + error_text(EMFILE));
    }
    if (fds.size() == before || fds.size() > count) {
      return Status(Code::kTcpTransfer, "the peer handed over another number of file descriptors");
    }
  }
  return fds;
}

bool watch_fd(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

Result<std::unique_ptr<EpollSleeper>> EpollSleeper::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll.valid() || !wake.valid()) return syscall_failure("epoll or eventfd");
  if (!watch_fd(epoll.get(), EPOLL_CTL_ADD, wake.get(), EPOLLIN, kWake)) {
    return syscall_failure("epoll_ctl");
  }
  return std::unique_ptr<EpollSleeper>(new EpollSleeper(std::move(epoll), std::move(wake)));
}

void EpollSleeper::ring() { StdAtomics::notify(wake_.get()); }

void EpollSleeper::sleep(std::uint32_t, std::chrono::nanoseconds at_most) {
  if (taken_) return nap(at_most, Deadline::never());
  // poll() consumes no events of the epoll set, so progress() can still read them. An epoll set is
  // never writable. If the descriptor is writable, the program has given its number to another
  // file, and poll() would end every sleep at once.
  pollfd entry{epoll_.get(), POLLIN | POLLOUT, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout{seconds.count(), (at_most - seconds).count()};
  if (::ppoll(&entry, 1, &timeout, nullptr) > 0) taken_ = (entry.revents & ~POLLIN) != 0;
}

void EpollSleeper::awake() {
  if (!wake_.ours()) return;  // read() would take bytes from a file of the program
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
}

}  // namespace hccl
