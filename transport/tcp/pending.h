// A connection that joins the mesh: its proof, and the hello after it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/deadline.h"
#include "transport/tcp/connection.h"

namespace hccl::transport::tcp {

// The time of an accepted connection for its proof.
inline constexpr std::chrono::seconds kHandshakeTime{5};
// If no whole message of the proof arrives in this time, the peer of an accepted connection is
// probably a stranger.
inline constexpr std::chrono::milliseconds kSilence{100};

/// The first bytes after authentication, in both directions.
struct Hello {
  std::array<char, 4> magic;
  std::uint32_t version;
  std::uint32_t from;
  std::uint32_t to;
};
static_assert(sizeof(Hello) == 16);
inline constexpr std::array<char, 4> kMagic{'H', 'T', 'C', 'P'};
inline constexpr std::uint32_t kVersion = 1;

/// A connection that is not part of the mesh yet.
struct Pending {
  enum class Stage { kConnecting, kProving, kGreeting };

  Pending(Connection with, int to, Handshake proof, Deadline until)
      : connection(std::move(with)), peer(to), handshake(std::move(proof)), deadline(until) {}

  int fd() const { return connection.fd(); }
  /// Whether the peer has sent no whole message of its proof for some time.
  bool silent() {
    return stage == Stage::kProving && kHandshakeTime - deadline.left() > kSilence &&
           !(connection.tls() != nullptr ? connection.tls()->named() : stepped);
  }
  bool proves_by_tls() { return stage == Stage::kProving && connection.tls() != nullptr; }

  Connection connection;
  int peer;             ///< the rank we connect to; -1 for an accepted connection
  Handshake handshake;  ///< used without TLS, which has its own proof
  Stage stage = Stage::kConnecting;
  std::string in;
  std::string out;
  Deadline deadline;
  bool wants_write = false;
  bool stepped = false;  ///< the handshake has taken a message
};

}  // namespace hccl::transport::tcp
