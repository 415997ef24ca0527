// One end of a control line between two nodes: frames (32-bit length, then bytes) over TLS. No
// frame arrives before the peer has proved that it holds the job's secret.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hccl/base/fd.h"
#include "hccl/base/tls.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// No function blocks. One thread at a time may call, but any thread may call fd().
class Line {
 public:
  using Side = TlsStream::Side;

  Line(Fd fd, Side side, std::shared_ptr<const TlsContext> context, const RootInfo& info);

  int fd() const { return fd_.get(); }
  /// In a forked child: closes the child's copy of the socket. No other call may follow.
  void abandon() { fd_.reset(); }

  /// Continues the proofs. Until proved(), poll for wants() and call prove() again. A stranger that
  /// sends nothing costs only a descriptor.
  Status prove();
  short wants() const;
  bool proved() const;
  /// Whether the peer's first bytes name this job's secret.
  bool named() const;

  /// Appends a frame to the frames that wait to be sent.
  void put(std::string_view frame);
  /// Sends as much as the socket takes.
  Status flush();
  bool unsent() const { return !out_.empty(); }

  /// Reads a part of the arrived bytes, and returns the size of the part. Call it until it returns
  /// 0: only then does poll report later bytes.
  Result<std::size_t> fill();
  /// The next complete frame, if there is one. kTcpTransfer if the next frame is empty or longer
  /// than `cap`, even before all its bytes have come.
  Result<std::optional<std::string>> next(std::size_t cap);

 private:
  Fd fd_;
  Side side_;
  std::shared_ptr<const TlsContext> context_;
  Key secret_;
  Uuid id_;
  std::optional<TlsStream> tls_;
  std::string in_;
  std::deque<std::string> out_;  // each frame with its length
  std::size_t sent_ = 0;         // sent bytes of the first frame in out_
};

}  // namespace hccl::join
