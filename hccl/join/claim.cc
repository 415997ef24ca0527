#include "hccl/join/claim.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "hccl/base/auth.h"

namespace hccl::join {
namespace {

// Calls bind() or connect() with a new socket. Returns an invalid descriptor if the call fails.
template <class Call>
Fd socket_of(const std::string& name, const Call& call) {
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The first byte stays zero: the name is in no file system.
  const std::string path = "hccl-" + digest_name(name);
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  if (!fd.valid() || call(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  return fd;
}

}  // namespace

Fd claim(const std::string& name) { return socket_of(name, ::bind); }
bool is_claimed(const std::string& name) { return socket_of(name, ::connect).valid(); }

std::string digest_name(const std::string& text) {
  const Key key = digest(text);
  return hex({reinterpret_cast<const char*>(key.data()), key.size()});
}

}  // namespace hccl::join
