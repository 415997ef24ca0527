// Connects this rank to peers on demand, to several at once, without blocking. The thread of the
// mesh uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/socket.h"
#include "hccl/base/status.h"
#include "hccl/base/tls.h"
#include "transport/tcp/inbox.h"
#include "transport/tcp/pending_connection.h"

namespace hccl::transport::tcp {

class Dialer {
 public:
  /// `from`: the local address to connect from. `peers`: the door of each rank. `epoll`: the set
  /// that watches the sockets, with the tags of tag(). A call fails after `time`.
  Dialer(std::shared_ptr<Inbox> inbox, std::string from, std::vector<Endpoint> peers,
         std::shared_ptr<const TlsContext> tls, std::chrono::nanoseconds time, int epoll);

  static std::uint64_t tag(int peer) { return kTag | static_cast<std::uint64_t>(peer); }
  static bool is_tag(std::uint64_t tag) { return tag >> 32 == kTag >> 32; }

  /// Tries to connect until the peer answers, or the call fails, or hang_up() ends the call because
  /// the peer's own connection has come. No effect if a call to the peer is running.
  void call(int peer);
  /// Whether no call is running and take() would return nothing.
  bool idle() const { return calls_.empty() && outcomes_.empty(); }
  /// Ends the call to the peer, or all calls.
  void hang_up(int peer);
  void hang_up();
  /// Handles an event of `epoll` that has this tag.
  void event(std::uint64_t tag);
  /// Repeats failed tries whose pause is over, and fails calls whose time is over.
  void look();

  struct Outcome {
    int peer = 0;
    /// The pair's connection, or a failure. kRemote: the peer's process or mesh has ended.
    /// kSyscall: this process lacks memory or descriptors. kTimeout: the time is over. The text of
    /// a failure is a whole sentence; for kTimeout and kRemote the text names the peer.
    Result<Connection> connection;
  };
  /// Returns the calls that have ended since the last take().
  std::vector<Outcome> take();

 private:
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 32;

  struct Call {
    std::optional<PendingConnection> pending;  // empty: the next try comes at `next`
    Deadline end = Deadline::never();          // end of the call
    Deadline next = Deadline::never();         // end of the pause, or of the try
    std::chrono::nanoseconds patience{};       // how long the next try may connect
    std::optional<Deadline> ended;             // a peer that refuses until then counts as gone
    std::optional<Deadline> lack;              // when a lack of descriptors fails the call
    std::string reason;
  };
  using Calls = std::map<int, Call>;

  void try_once(int peer, Call& call);
  void failed(int peer, Call& call, const Status& why);
  void close(Call& call);
  void pause(Call& call);
  void step(Calls::iterator at);
  void greet(Calls::iterator at);
  void ended(Calls::iterator at, const std::string& reason = {});
  void give_up(Calls::iterator at, Status why);
  std::string where(int peer) const;

  const std::shared_ptr<Inbox> inbox_;
  const std::string from_;
  const std::vector<Endpoint> peers_;
  const std::shared_ptr<const TlsContext> tls_;
  const std::chrono::nanoseconds time_;
  const int epoll_;
  Calls calls_;
  std::vector<Outcome> outcomes_;
  Deadline next_look_ = Deadline::never();
};

}  // namespace hccl::transport::tcp
