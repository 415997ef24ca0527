#include "transport/tcp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "hccl/base/error_text.h"

namespace hccl::transport::tcp {
namespace {

constexpr int kSocketBuffer = 4 << 20;
// The pieces of a smaller write are copied into one, because a write of one piece costs less than a
// gathering write.
constexpr std::size_t kLittle = 2048;
// The bytes that TLS encrypts at a time; smaller writes are copied together.
constexpr std::size_t kRecord = 16 * 1024;

/// Copies the pieces to `to`, one after another. `to` must have room for all of them. Returns their
/// size.
std::size_t gather(std::span<const iovec> pieces, char* to) {
  std::size_t at = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len != 0) std::memcpy(to + at, piece.iov_base, piece.iov_len);
    at += piece.iov_len;
  }
  return at;
}

std::size_t total(std::span<const iovec> pieces) {
  std::size_t size = 0;
  for (const iovec& piece : pieces) size += piece.iov_len;
  return size;
}

ssize_t send(int fd, std::span<const iovec> pieces) {
  if (total(pieces) <= kLittle) {
    std::array<char, kLittle> little;
    return ::send(fd, little.data(), gather(pieces, little.data()), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// readv() is not used: if the program has put a file in the socket's place, readv() would read the
// file.
ssize_t receive(int fd, std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return ::recvmsg(fd, &message, MSG_DONTWAIT);
}

Status ended() {
  if (errno == ETIMEDOUT) {
    return Status(Code::kTimeout, "the other host has not answered the kernel's probes");
  }
  return Status(Code::kTcpTransfer, errno == 0 ? "" : error_text(errno));
}

Result<std::size_t> read_tls(TlsStream& tls, std::span<const iovec> pieces) {
  std::size_t all = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    const auto got = tls.read({static_cast<char*>(piece.iov_base), piece.iov_len});
    // If bytes came before the failure, returns them. The next call returns the failure.
    if (!got.ok()) return all > 0 ? Result<std::size_t>(all) : got;
    all += *got;
    if (*got < piece.iov_len) break;
  }
  return all;
}

Result<std::size_t> write_tls(TlsStream& tls, std::span<const iovec> pieces) {
  std::size_t all = 0;
  while (!pieces.empty()) {
    std::array<char, kRecord> little;
    std::size_t count = 0;
    for (std::size_t size = 0; count < pieces.size(); ++count) {
      size += pieces[count].iov_len;
      if (size > little.size()) break;
    }
    std::string_view bytes;
    if (count < 2) {
      count = 1;
      bytes = {static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len};
    } else {
      bytes = {little.data(), gather(pieces.first(count), little.data())};
    }
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, tls.write(bytes));
    all += sent;
    if (sent < bytes.size()) break;
    pieces = pieces.subspan(count);
  }
  return all;
}

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

/// Within a host no network is shared and no packet is lost, so a congestion control with pacing
/// (BBR) would only limit the bursts of a collective to the measured mean rate. Between hosts the
/// system's choice stays.
void do_not_pace(int fd) {
  constexpr std::string_view kAlwaysThere = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kAlwaysThere.data(), kAlwaysThere.size());
}

}  // namespace

void Connection::suit(bool near) {
  enlarge_buffers(fd());
  if (near) do_not_pace(fd());
}

Result<std::size_t> Connection::read(std::span<const iovec> pieces) {
  if (tls_) return read_tls(*tls_, pieces);
  for (;;) {
    // recv() into one piece costs less than recvmsg().
    const bool one = pieces[0].iov_len == 0;
    const ssize_t got = one ? ::recv(fd_.get(), pieces[1].iov_base, pieces[1].iov_len, MSG_DONTWAIT)
                            : receive(fd_.get(), pieces);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::size_t{0};
    if (got == 0) errno = 0;
    return ended();
  }
}

Result<std::size_t> Connection::write(std::span<const iovec> pieces) {
  if (tls_) return write_tls(*tls_, pieces);
  for (;;) {
    const ssize_t sent = send(fd_.get(), pieces);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    return ended();
  }
}

void Connection::finish() {
  if (tls_) tls_->close();
}

void Connection::reset() {
  // A forked child may hold the socket, too, so closing alone would not tell the peer.
  if (fd_.ours()) ::shutdown(fd_.get(), SHUT_RDWR);
  tls_.reset();
  fd_.reset();
}

}  // namespace hccl::transport::tcp
