// Blocking calls on sockets and streams; the library itself never blocks in them.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/error_text.h"
#include "hccl/base/socket.h"
#include "hccl/base/tls.h"

namespace hccl {

/// Connects. While the peer refuses, tries again until the deadline.
inline Result<Fd> connect_tcp(const std::string& address, std::uint16_t port, Deadline deadline) {
  for (;;) {
    auto fd = start_connect_tcp(address, port, "");
    Status last = fd.status();
    if (!last.ok() && last.code() != Code::kTcpConnect) return last;
    if (last.ok()) last = wait_fd(fd->get(), POLLOUT, deadline);
    const int error = last.ok() ? connect_error(fd->get()) : 0;
    if (error != 0) last = Status(Code::kTcpConnect, error_text(error));
    if (last.ok()) return fd;
    if (deadline.expired()) return last;
    nap(std::chrono::milliseconds(2), deadline);
  }
}

/// `fd` is the stream's socket.
inline Status handshake(TlsStream& stream, int fd, Deadline deadline) {
  for (;;) {
    HCCL_RETURN_IF_ERROR(stream.handshake());
    if (stream.finished()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(fd, stream.wants(), deadline));
  }
}

inline Status send_all(TlsStream& stream, int fd, std::string_view bytes, Deadline deadline) {
  for (;;) {
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, stream.write(bytes));
    bytes.remove_prefix(sent);
    if (bytes.empty()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(fd, stream.wants(), deadline));
  }
}

inline Status recv_all(TlsStream& stream, int fd, std::span<char> bytes, Deadline deadline) {
  for (;;) {
    HCCL_ASSIGN_OR_RETURN(const std::size_t got, stream.read(bytes));
    bytes = bytes.subspan(got);
    if (bytes.empty()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(fd, stream.wants(), deadline));
  }
}

}  // namespace hccl
