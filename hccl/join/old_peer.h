// Protocol 3 and older: a handshake (hccl/base/auth.h), then frames in clear. It lives on for one
// purpose: that ranks and roots of different versions tell each other so, instead of waiting.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hccl/base/auth.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// An older rank as the coordinator sees it. Nothing blocks.
class OldPeer {
 public:
  static constexpr char kFirstByte = 'H';  ///< of its first message; TLS begins with another one

  OldPeer(int fd, const Key& secret, const Uuid& id);
  Status prove();
  bool proved() const { return handshake_.finished(); }
  bool named() const { return named_; }
  /// 0: nothing has arrived.
  Result<std::size_t> read(std::span<char> out) const;
  Result<std::size_t> write(std::string_view bytes) const;

 private:
  int fd_;
  Handshake handshake_;
  bool named_ = false;
  std::string in_;
};

/// Over a new connection to a root that does not understand TLS: says which rank of which version
/// this is, and nothing else, and returns what the root answers. kTcpTransfer: this is no root of
/// an older version either.
Status ask_old_root(int fd, const RootInfo& info, int size, int rank, Deadline deadline);

}  // namespace hccl::join
