// The bytes of one connection: directly from and to the socket, or through TLS.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "hccl/base/tls.h"

namespace hccl::transport::tcp {

/// No call blocks. Calls fail with kRemote if bytes were altered on the way, kTimeout if the peer's
/// host does not answer, and kTcpTransfer if the connection has ended. The text has the reason, or
/// is empty if the peer closed the connection cleanly.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd fd, std::optional<TlsStream> tls = std::nullopt)
      : fd_(std::move(fd)), tls_(std::move(tls)) {}

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

  /// Sets the socket's buffers and pacing for messages. `near`: the peer is on this host.
  void suit(bool near);

  /// Fills the pieces in order with the bytes that have arrived. If the pieces are not full, no
  /// more bytes have arrived.
  Result<std::size_t> read(std::span<const iovec> pieces);
  /// Whether bytes have arrived that epoll does not report.
  bool pending() const { return tls_.has_value() && tls_->pending(); }
  /// Sends the pieces in order, as far as there is room. Some of the remaining bytes may be
  /// encrypted already. So the next call must begin with the remaining bytes, and contain all of
  /// them.
  Result<std::size_t> write(std::span<const iovec> pieces);
  /// With TLS, tells the peer that no bytes follow.
  void finish();
  /// Encrypts the connection from now on.
  void encrypt(TlsStream tls) { tls_ = std::move(tls); }
  TlsStream* tls() { return tls_ ? &*tls_ : nullptr; }
  /// Closes the socket at both ends, also if forked children hold it.
  void reset();

 private:
  Fd fd_;
  std::optional<TlsStream> tls_;  // uses fd_
};

}  // namespace hccl::transport::tcp
