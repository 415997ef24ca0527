// Both ends of a connection prove to each other that they hold the same secret, before any other
// byte is read. The proof is an HMAC-SHA256 (OpenSSL) of both ends' nonces. The three messages have
// fixed sizes, so no message has to be parsed:
//   client: magic, id, nonce
//   server: nonce, HMAC(key, "server"…)
//   client: HMAC(key, "client"…)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/status.h"

namespace hccl {

/// One side of the handshake, without any I/O: pass it exactly wants() bytes at a time.
class Handshake {
 public:
  enum class Side { kClient, kServer };
  /// `purpose` separates uses of one key ("control", "tcp data 3>5"): both sides must pass the same
  /// text.
  Handshake(Side side, const Key& key, const Uuid& id, std::string purpose);

  /// Size of a client's first message.
  static constexpr std::size_t kFirst = 8 + sizeof(Uuid) + 32;
  /// Reads the id in a client's first message, so that a server can choose between several keys.
  static Uuid id_in(std::string_view first);

  /// Returns the bytes to send before anything is received (empty for the server).
  std::string first();
  /// Returns the number of bytes that must arrive before step() is called; 0 when finished.
  std::size_t wants() const;
  /// Takes wants() bytes; returns the bytes to send back. kTcpConnect: the peer does not hold the
  /// key.
  Result<std::string> step(std::string_view bytes);
  bool finished() const { return stage_ == 2; }

 private:
  std::string mac(std::string_view role) const;
  Side side_;
  Key key_;
  Uuid id_;
  std::string purpose_;
  std::string client_nonce_;
  std::string server_nonce_;
  int stage_ = 0;
};

/// Runs the whole handshake over a socket.
Status authenticate(int fd, Handshake handshake, Deadline deadline);

/// Sets the functions from which OpenSSL gets its memory, with the signatures of
/// CRYPTO_set_mem_functions(). This call has no effect after OpenSSL's first allocation.
void crypto_memory(void* (*take)(std::size_t, const char*, int),
                   void* (*resize)(void*, std::size_t, const char*, int),
                   void (*give_back)(void*, const char*, int)) noexcept;
/// Makes OpenSSL free nothing at the end of the program, because threads may still use it. This
/// call has no effect after OpenSSL's first use.
void crypto_outlives_exit() noexcept;
/// Frees OpenSSL's data of the calling thread, which is about to end. Without this call OpenSSL
/// frees the data after the thread's function has returned, and holds a lock meanwhile. A child
/// forked at that time would wait for the lock forever.
void crypto_leaves_thread() noexcept;
/// Derives a key from another key (HKDF-SHA256), for example derive(secret, "control v1").
Key derive(const Key& secret, std::string_view label);
/// Returns the SHA-256 of a text, for fingerprints and identities that others can recompute.
Key digest(std::string_view text);
/// Returns two hex digits for each byte.
std::string hex(std::string_view bytes);
/// Returns eight hex digits that name an id or a digest in logs.
inline std::string short_name(std::string_view bytes) { return hex(bytes.substr(0, 4)); }

}  // namespace hccl
