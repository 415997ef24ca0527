// TLS 1.3 over a connected socket whose ends hold the same secret: pre-shared key with ephemeral
// Diffie-Hellman, AES-128-GCM, no certificates, no tickets, no early data (OpenSSL). An
// eavesdropper learns only the number of bytes. Bytes that were changed, repeated, omitted or cut
// off end the stream.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl {

/// A pre-shared key and its name. The client sends the name unencrypted.
struct TlsKey {
  std::string name;
  Key key{};
};
/// For a server that holds several keys: returns the key with the name that a client asks for. For
/// an unknown name, returns any other key, and the handshake fails.
using TlsKeyFinder = std::function<TlsKey(std::string_view name)>;
/// Returns the id in a name that tls_key() made; zeroes for any other name.
Uuid id_in_tls_name(std::string_view name);
/// Derives the key for one purpose ("control", "tcp data 3>5") from the secret. Both ends must pass
/// the same text; every other text gives an unrelated key.
TlsKey tls_key(const Key& secret, const Uuid& id, std::string_view purpose);

/// The state that streams share. Any thread may use it.
struct TlsContext;
/// AES-GCM may encrypt 2^24.5 records with one key (RFC 8446, 5.5). A stream changes its key long
/// before.
constexpr std::size_t kTlsRecordsPerKey = std::size_t{1} << 22;
/// Takes about a millisecond.
Result<std::shared_ptr<const TlsContext>> make_tls_context(
    std::size_t records_per_key = kTlsRecordsPerKey);

/// One end of a connection. Nothing blocks. A failure is final: every later call returns the
/// failure again, but bytes that arrived before the connection broke can still be read. Calls must
/// be serialised; a thread that only polls needs no lock.
///   kTcpConnect    the peer does not hold the key
///   kUnavail       the two ends ask for different keys
///   kRemote        arrived bytes were changed on the way (the peer gets an alert, and fails too)
///   kTcpTransfer   the connection was closed in good order, cut, or reset; the text says which
class TlsStream {
 public:
  enum class Side { kClient, kServer };
  /// The descriptor must be non-blocking. The caller owns the descriptor, and keeps it open until
  /// the stream is destroyed.
  static Result<TlsStream> create(std::shared_ptr<const TlsContext> context, Side side, int fd,
                                  TlsKey key);
  /// For a server that holds several keys: calls `find` once the client has sent the name of a key.
  static Result<TlsStream> create(std::shared_ptr<const TlsContext> context, int fd,
                                  TlsKeyFinder find);
  TlsStream(TlsStream&&) noexcept;
  TlsStream& operator=(TlsStream&&) noexcept;
  ~TlsStream();

  /// Continues the handshake. Poll for wants() and call handshake() again, until finished().
  Status handshake();
  /// Returns the event to poll for: POLLIN or POLLOUT.
  short wants() const;
  /// Returns whether both ends have proved that they hold the key.
  bool finished() const;
  /// On the server: returns whether the client's first message was made with the key. An attacker
  /// may have recorded and repeated that message.
  bool named() const;

  /// Encrypts and sends as many of these bytes as the socket takes, in records of 16 KiB, and
  /// returns their number. If bytes remain, poll for POLLOUT. OpenSSL may have encrypted some of
  /// the remaining bytes already. So the next call must pass all remaining bytes, in order, at any
  /// address; more bytes may follow.
  Result<std::size_t> write(std::string_view bytes);
  /// Fills `out` from the records that have arrived completely. If `out` was not filled, poll for
  /// POLLIN.
  Result<std::size_t> read(std::span<char> out);
  /// Returns whether TLS may hold bytes that poll does not report, because the last read() filled
  /// its span.
  bool pending() const;
  /// Sends TLS's closing alert, which tells the peer that the stream is complete and was not cut
  /// off. Does not block, so a full socket may take only a part of the alert.
  void close();

 private:
  struct State;
  explicit TlsStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hccl
