#include "hccl/join/old_peer.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "hccl/base/socket.h"
#include "hccl/join/wire.h"

namespace hccl::join {
namespace {

Result<std::size_t> moved(ssize_t bytes) {
  if (bytes >= 0) return static_cast<std::size_t>(bytes);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
  return Status(Code::kTcpTransfer, std::strerror(errno));
}

}  // namespace

OldPeer::OldPeer(int fd, const Key& secret, const Uuid& id)
    : fd_(fd), handshake_(Handshake::Side::kServer, secret, id, "control") {}

Result<std::size_t> OldPeer::read(std::span<char> out) const {
  const ssize_t got = ::recv(fd_, out.data(), out.size(), 0);
  if (got == 0) return Status(Code::kTcpTransfer, "the peer closed the connection");
  return moved(got);
}

Result<std::size_t> OldPeer::write(std::string_view bytes) const {
  return moved(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

Status OldPeer::prove() {
  while (!handshake_.finished()) {
    std::string bytes(handshake_.wants() - in_.size(), '\0');
    HCCL_ASSIGN_OR_RETURN(const std::size_t got, read(bytes));
    if (got == 0) return {};
    in_.append(bytes, 0, got);
    if (in_.size() < handshake_.wants()) continue;
    HCCL_ASSIGN_OR_RETURN(const std::string reply, handshake_.step(in_));
    named_ = true;
    in_.clear();
    // The first bytes of a connection find room.
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, write(reply));
    if (sent < reply.size()) return Status(Code::kTcpTransfer, "the peer takes no bytes");
  }
  return {};
}

Status ask_old_root(int fd, const RootInfo& info, int size, int rank, Deadline deadline) {
  HCCL_RETURN_IF_ERROR(authenticate(
      fd, Handshake(Handshake::Side::kClient, info.secret, info.id, "control"), deadline));
  wire::Member me;
  me.rank = static_cast<std::uint32_t>(rank);
  ByteWriter hello;
  hello.put(wire::Kind::kHello).put(wire::kVersion).put(static_cast<std::uint32_t>(size));
  wire::put(hello.put_text(""), me);
  HCCL_RETURN_IF_ERROR(send_frame(fd, hello.bytes(), deadline));
  HCCL_ASSIGN_OR_RETURN(const std::string answer, recv_frame(fd, wire::kHelloCap, deadline));
  ByteReader in(answer);
  if (in.get<wire::Kind>() != wire::Kind::kRefused) {
    return Status(Code::kTcpTransfer, "the root answers in a language that nobody knows");
  }
  return wire::get_status(in);
}

}  // namespace hccl::join
