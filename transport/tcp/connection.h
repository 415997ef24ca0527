// The bytes of one connection: straight from and to the socket, or through TLS.
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

/// Nothing blocks. Failures: kRemote, bytes were altered on the way; kTcpTransfer, the connection
/// has ended, with the reason, or without a text where the peer has closed it in good order.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd fd, std::optional<TlsStream> tls = std::nullopt)
      : fd_(std::move(fd)), tls_(std::move(tls)) {}

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

  /// Fills the pieces in order with what is here. 0: nothing is; fewer bytes than asked for:
  /// nothing more is.
  Result<std::size_t> read(std::span<const iovec> pieces);
  /// Whether bytes have come that epoll does not know of.
  bool pending() const { return tls_.has_value() && tls_->pending(); }
  /// Sends the pieces in order, as far as there is room. Bytes that were not taken come first in
  /// the next call, and all of them: some may be encrypted already.
  Result<std::size_t> write(std::span<const iovec> pieces);
  /// Says that no bytes follow, where that is said.
  void finish();
  /// For those who join.
  TlsStream* tls() { return tls_ ? &*tls_ : nullptr; }
  /// Closes the socket, at both ends and in forked children.
  void reset();

 private:
  Fd fd_;
  std::optional<TlsStream> tls_;  // uses fd_
};

}  // namespace hccl::transport::tcp
