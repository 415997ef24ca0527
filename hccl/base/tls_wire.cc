#include "hccl/base/tls_wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace hccl {
namespace {

// The most bytes that OpenSSL reads and keeps before the peer has proved that it holds the key. A
// handshake needs a tenth of this.
constexpr std::size_t kHandshakeCap = 4096;

// OpenSSL's own socket methods would raise SIGPIPE, and have no limit.
int wire_read(BIO* bio, char* out, int size) {
  auto* wire = static_cast<TlsWire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (!wire->proved) {
    size = static_cast<int>(
        std::min<std::size_t>(static_cast<std::size_t>(size), kHandshakeCap - wire->received));
    if (size == 0) return -1;
  }
  ssize_t got = 0;
  do {
    got = ::recv(wire->fd, out, static_cast<std::size_t>(size), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    if (!wire->proved) wire->received += static_cast<std::size_t>(got);
  } else if (got == 0) {
    wire->end = true;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    BIO_set_retry_read(bio);
  } else {
    wire->error = errno;
  }
  return static_cast<int>(got);
}

// Exceptions must not pass through OpenSSL.
int wire_write(BIO* bio, const char* bytes, int size) {
  auto* wire = static_cast<TlsWire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  try {
    wire->out.append(bytes, static_cast<std::size_t>(size));
  } catch (const std::bad_alloc&) {
    wire->error = ENOMEM;
    return -1;
  }
  return size;
}

long wire_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return static_cast<TlsWire*>(BIO_get_data(bio))->end ? 1 : 0;
  return 0;
}

}  // namespace

bool TlsWire::flush() {
  std::size_t done = 0;
  while (done < out.size() && error == 0) {
    const ssize_t sent = ::send(fd, out.data() + done, out.size() - done, MSG_NOSIGNAL);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  out.erase(0, done);
  if (out.empty()) out.shrink_to_fit();  // there may be many streams
  return out.empty() || error != 0;
}

BIO_METHOD* new_tls_wire_method() {
  BIO_METHOD* method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "hccl");
  if (method == nullptr) return nullptr;
  const auto create = [](BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  };
  if (BIO_meth_set_read(method, wire_read) == 1 && BIO_meth_set_write(method, wire_write) == 1 &&
      BIO_meth_set_ctrl(method, wire_control) == 1 && BIO_meth_set_create(method, create) == 1) {
    return method;
  }
  BIO_meth_free(method);
  return nullptr;
}

}  // namespace hccl
