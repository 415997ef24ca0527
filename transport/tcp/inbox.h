// The inbox of a mesh; the mesh shares it with the door. For each peer the inbox knows which end
// connects. It holds the connections that came through the door until the mesh takes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "transport/tcp/connection.h"

namespace hccl::transport::tcp {

/// The answer of the end that accepts.
enum class Answer : std::uint32_t {
  kAsk,      ///< no answer: the mark of a hello from the end that connects
  kWelcome,  ///< this is the connection of the two ranks
  kCrossed,  ///< the accepting end connects itself
  kEnded     ///< the mesh has closed, or the two ranks have had their connection
};

/// Each mesh has an inbox. Both ends of a pair may connect at once. Then the connection of the
/// higher rank counts; the lower rank gets kCrossed and waits. If the higher rank's try fails, the
/// higher rank accepts the lower rank's next try for a while.
class Inbox {
 public:
  /// `key` is the mesh's key. `bell` wakes the mesh until close().
  Inbox(const Key& key, int rank, std::size_t ranks, bool encrypted, EpollSleeper& bell);

  const Key& key() const { return key_; }
  const Uuid& id() const { return id_; }
  int rank() const { return rank_; }
  std::size_t ranks() const { return ranks_; }
  bool encrypted() const { return encrypted_; }

  struct Arrival {
    int peer = 0;
    Connection connection;
  };

  // ---- for the mesh ----
  /// Call before this rank connects. Returns false if this rank must wait for the peer's
  /// connection.
  bool begin(int peer);
  /// Call when this rank's try has ended. `welcome`: the peer accepted the connection. Returns
  /// whether the peer's own connection comes instead.
  bool end(int peer, bool welcome);
  /// Whether take() would return anything. Cheap.
  bool rang() const { return rang_.load(std::memory_order_acquire); }
  /// Returns the connections that came since the last call. `lack`: the reason if the door cannot
  /// accept connections.
  std::vector<Arrival> take(Status& lack);
  /// The mesh closes. Nothing is delivered any more.
  void close();

  // ---- for the door ----
  Answer offer(int peer);
  /// Gives a connection to the mesh, after offer() returned kWelcome. If the answer could not be
  /// sent, the connection of `arrival` is invalid, and the peer may connect again.
  void deliver(Arrival arrival);
  void lacks(const Status& why);

 private:
  enum class State : std::uint8_t { kNone, kConnecting, kOpen };

  const Key key_;
  const Uuid id_;
  const int rank_;
  const std::size_t ranks_;
  const bool encrypted_;
  std::atomic<bool> rang_{false};
  Mutex mutex_;
  EpollSleeper* bell_ HCCL_GUARDED_BY(mutex_);         // null: closed
  std::vector<State> states_ HCCL_GUARDED_BY(mutex_);  // of each peer
  std::vector<Arrival> arrivals_ HCCL_GUARDED_BY(mutex_);
  Status lack_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::transport::tcp
