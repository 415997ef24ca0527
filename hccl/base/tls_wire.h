// The socket below a TlsStream, in OpenSSL's form.
#pragma once

#include <openssl/bio.h>

#include <cstddef>
#include <string>

namespace hccl {

/// The socket, and its state.
struct TlsWire {
  int fd = -1;
  bool proved = false;
  std::size_t received = 0;  ///< bytes received before the proof
  bool end = false;          ///< the peer sends no more
  int error = 0;
  std::string out = {};  ///< encrypted bytes that are not sent yet

  /// Sends as much as the socket takes. Returns true once everything is sent, or the connection has
  /// broken.
  bool flush();
};

/// Makes the methods of a BIO whose data is a TlsWire. Null if there is no memory. Free the methods
/// with BIO_meth_free().
BIO_METHOD* new_tls_wire_method();

}  // namespace hccl
