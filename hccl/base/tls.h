// TLS 1.3 over a connected socket whose ends hold the same secret: pre-shared key with ephemeral
// Diffie-Hellman, AES-128-GCM, no certificates, no tickets, no early data (OpenSSL). Who reads the
// bytes on the way learns nothing but their number; bytes that were changed, repeated, left out or
// cut off end the stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"

namespace hccl {

/// A pre-shared key and its name, which the client sends in clear.
struct TlsKey {
  std::string name;
  Key key{};
};
/// The key for one purpose ("control", "tcp data 3>5") among those who hold the secret; both ends
/// must pass the same text, and every other text gives an unrelated key.
TlsKey tls_key(const Key& secret, const Uuid& id, std::string_view purpose);

/// What streams share; costs about a millisecond to make. Any thread may use it.
class TlsContext {
 public:
  /// AES-GCM may encrypt 2^24.5 records with one key (RFC 8446, 5.5): a stream changes keys before.
  static constexpr std::size_t kRecordsPerKey = std::size_t{1} << 22;
  static Result<std::shared_ptr<const TlsContext>> create(
      std::size_t records_per_key = kRecordsPerKey);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  struct Settings;
  explicit TlsContext(std::unique_ptr<Settings> settings);
  std::unique_ptr<Settings> settings_;
};

/// One end of a connection. Nothing blocks, and a failure is final: every later call returns it
/// again; only what came before the connection broke may be read still. One thread at a time may
/// call; the others' lock need not be held while they poll.
///   kTcpConnect    the peer does not hold the key
///   kUnavail       the peer asks for another key, or was asked for another one
///   kRemote        what arrived was changed on the way (the peer is told, and fails too)
///   kTcpTransfer   the connection was closed in good order, cut, or reset; the text says which
class TlsStream {
 public:
  enum class Side { kClient, kServer };
  /// The descriptor must be non-blocking; it stays the caller's, and must outlive the stream.
  static Result<TlsStream> create(std::shared_ptr<const TlsContext> context, Side side, int fd,
                                  TlsKey key);
  TlsStream(TlsStream&&) noexcept;
  TlsStream& operator=(TlsStream&&) noexcept;
  ~TlsStream();

  /// Goes on with the handshake; poll for wants() and call it again, until finished().
  Status handshake();
  /// POLLIN or POLLOUT.
  short wants() const;
  /// Both ends have proved that they hold the key.
  bool finished() const;
  /// Server: the first message was made by a holder of the key, now or when it was recorded.
  bool named() const;

  /// Encrypts and sends as many of these bytes as the socket takes, in records of 16 KiB, and
  /// returns their number. Fewer: poll for POLLOUT. The next call must begin with the bytes that
  /// follow, and may not leave off any of them, as OpenSSL may have encrypted some already; they
  /// may lie elsewhere.
  Result<std::size_t> write(std::string_view bytes);
  /// Fills `out` from the records that have arrived whole. Fewer bytes, or none: poll for POLLIN.
  Result<std::size_t> read(std::span<char> out);
  /// Whether bytes may be here that poll does not know of: the last read() filled its span.
  bool pending() const;
  /// Tells the peer that no bytes follow, so that the end is not taken for a cut; sends what the
  /// socket takes at once.
  void close();

  int fd() const;

 private:
  struct State;
  explicit TlsStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The same, blocking. kTimeout, or the reason of the abort flag; the stream is of no use after.
Status handshake(TlsStream& stream, Deadline deadline, const AbortFlag* abort = nullptr);
Status send_all(TlsStream& stream, std::string_view bytes, Deadline deadline,
                const AbortFlag* abort = nullptr);
Status recv_all(TlsStream& stream, std::span<char> bytes, Deadline deadline,
                const AbortFlag* abort = nullptr);

}  // namespace hccl
