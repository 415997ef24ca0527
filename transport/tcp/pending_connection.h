// A connection that is being made: first the proof, then a hello in each direction.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/deadline.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/inbox.h"

namespace hccl::transport::tcp {

// If descriptors run out, the next try comes after kLackPause. The lack is a failure only after
// kLackTime, because other threads may free descriptors before.
inline constexpr std::chrono::milliseconds kLackPause{20};
inline constexpr std::chrono::seconds kLackTime{1};

/// The first bytes after the proof. The connecting end sends a Hello, and the accepting end answers
/// with a Hello. Nothing else is sent before the answer.
struct Hello {
  std::array<char, 4> magic;
  std::uint32_t version;
  std::uint32_t from;
  std::uint32_t to;
  Answer answer;
};
static_assert(sizeof(Hello) == 20);
inline constexpr std::array<char, 4> kMagic{'H', 'T', 'C', 'P'};
inline constexpr std::uint32_t kVersion = 2;

/// The purpose of the key with which a rank proves itself to `server`.
std::string purpose(int server);

class PendingConnection {
 public:
  /// The connecting end. The descriptor is a socket from start_connect_tcp().
  static Result<PendingConnection> to(const Inbox& own, int peer, Fd fd,
                                      const std::shared_ptr<const TlsContext>& tls);
  /// The accepting end. `find` returns the inbox of the mesh that the peer names, `context` the TLS
  /// context.
  using Find = std::function<std::shared_ptr<Inbox>(const Uuid& id)>;
  using Context = std::function<Result<std::shared_ptr<const TlsContext>>()>;
  PendingConnection(Fd fd, Find find, Context context);

  int fd() const { return connection_.fd(); }
  /// Advances as far as possible without blocking, until greeted(). Fails with kUnavail if nobody
  /// listens at the other end, and with kNotFound if the other end's process no longer has the
  /// mesh.
  Status advance();
  /// Whether the whole hello of an authenticated peer has arrived.
  bool greeted() const { return stage_ == Stage::kGreeting && in_.size() == sizeof(Hello); }
  Hello hello() const { return ByteReader(in_).get<Hello>(); }
  /// For the accepting end, once greeted(): sends the answer.
  Status answer(const Hello& hello);
  /// Makes `epoll` report with this tag when advance() can do more. Call this first and after each
  /// advance().
  void watch(int epoll, std::uint64_t tag);
  /// Whether the connection is established, as far as this end knows.
  bool connected() const { return stage_ != Stage::kConnecting; }
  /// Whether the peer has sent a part of its proof.
  bool has_spoken();
  /// Whether the hello has been sent. From then on the peer may use this connection for the pair.
  bool has_greeted() const { return stage_ == Stage::kGreeting; }
  const std::shared_ptr<Inbox>& inbox() const { return inbox_; }
  Connection take() { return std::move(connection_); }

 private:
  enum class Stage { kConnecting, kOpening, kProving, kGreeting };

  explicit PendingConnection(Connection connection) : connection_(std::move(connection)) {}
  bool wants_write();
  Status look_at_first_byte();
  Status prove();
  Status flush();
  Status fill(std::size_t wanted);
  void begin_greeting();

  Connection connection_;
  Stage stage_ = Stage::kConnecting;
  std::optional<Handshake> handshake_;  ///< only without TLS, which has its own proof
  std::string greeting_;                ///< of the end that connects
  std::shared_ptr<Inbox> inbox_;        ///< of the end that accepts, once the peer has named it
  Find find_;
  Context context_;
  std::string in_;
  std::string out_;
  bool spoken_ = false;
  std::optional<bool> watches_write_;  ///< empty: the epoll set does not have the socket yet
};

}  // namespace hccl::transport::tcp
