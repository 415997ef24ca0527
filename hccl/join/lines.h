// The sockets of one node of the control tree: lines to its neighbours, dials, and strangers at its
// listener that have not proved yet that they hold the job's secret.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/log.h"
#include "hccl/base/socket.h"
#include "hccl/control/neighbours.h"
#include "hccl/join/line.h"

namespace hccl::join {

/// No function blocks. No frame reaches the caller before its sender has proved itself. Not
/// thread-safe. A forked child may call only abandon().
class Lines {
 public:
  using LineId = control::LineId;
  using Time = control::Time;
  enum class What : std::uint8_t { kOpened, kFailed, kFrame, kClosed };
  struct Event {
    What what;
    LineId line;        ///< kFailed: the number that dial() returned
    std::string text;   ///< the frame, or the reason for people
    bool gone = false;  ///< kFailed: nobody listens there, so the process has ended
  };
  static constexpr std::size_t kStrangers = 32;  ///< for a node that is not the first root
  static constexpr std::size_t kFrameCap = std::size_t{8} << 20;   ///< bytes of a frame
  static constexpr std::size_t kQueueCap = std::size_t{64} << 20;  ///< bytes that wait on a line
  static constexpr std::chrono::seconds kDialTime{1};
  static constexpr std::chrono::seconds kProofTime{5};

  /// Watches its descriptors in this epoll set, with tags from `tags` to `tags` + 2^32 - 1.
  /// `strangers`: the most descriptors that strangers take. `spare`: from open_spare().
  Lines(RootInfo key, Listener listener, std::shared_ptr<const TlsContext> context, int epoll,
        std::uint64_t tags, Logger log, Fd spare, std::size_t strangers = kStrangers);
  /// Opens the spare descriptor, with which callers are turned away while no other descriptor is
  /// free.
  static Result<Fd> open_spare();
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Starts a connection and its proofs. kOpened or kFailed follows, within kDialTime.
  LineId dial(const std::string& address, std::uint16_t port, Time now);
  /// Takes over a line that has been proved.
  LineId add(Line line);
  /// Sends the frame; turn() sends the rest if the socket takes only a part. No effect on an
  /// unknown line.
  void send(LineId line, std::string_view frame);
  /// Closes the line once all its frames are sent. No event follows.
  void close(LineId line);

  /// The descriptor with this tag is ready.
  void ready(std::uint64_t tag, std::uint32_t events);
  /// Does the work that is due, established lines before strangers. Returns all events since the
  /// last call.
  std::vector<Event> turn(Time now);
  /// When turn() next has something to do even if no event comes.
  Time next() const;
  /// Whether frames still wait to be sent.
  bool unsent() const;
  /// Returns the reason why callers are turned away, if no descriptor has been free for them for a
  /// second; else success.
  Status lacks(Time now) const;
  /// Frees the spare descriptor for callers: one after the other, they connect and get the reason
  /// of their refusal.
  void use_spare() { spare_.reset(); }
  /// Closes everything at once; nothing more happens.
  void close_all();
  /// In a forked child: closes the child's copies.
  void abandon();

 private:
  struct Connection {
    Fd fd{};                     // the socket while it connects
    std::optional<Line> line{};  // the line on the connected socket
    bool open = false;           // both ends have proved themselves
    bool dialed = false;         // this node dialed
    bool closing = false;        // closes once all frames are sent
    bool deaf = false;       // the other end takes no more bytes; its earlier bytes are still read
    std::size_t queued = 0;  // bytes queued since the queue was last empty
    Time since{};
    std::uint32_t watched = 0;  // the events that epoll watches
  };

  std::uint64_t tag_of(LineId id) const { return tags_ + static_cast<std::uint32_t>(id); }
  void watch(LineId id, Connection& connection, std::uint32_t events);
  void erase(LineId id);
  void hear_knocks(bool on);
  Time room_at() const;
  bool drop_stranger(Time now);
  void accept_some(Time now);
  void turn_away(const Status& why, Time now);
  void connect(LineId id, Connection& connection);
  void prove(LineId id, Connection& connection);
  void read(LineId id, Connection& connection);
  void flush(LineId id, Connection& connection);
  void fail(LineId id, const std::string& why, bool gone = false);
  static Time ends(const Connection& connection);
  void expire(Time now);

  RootInfo key_;
  Listener listener_;
  std::shared_ptr<const TlsContext> context_;
  int epoll_;
  std::uint64_t tags_;
  Logger log_;
  Fd spare_;  // for turning a caller away while no descriptor is free
  const std::size_t cap_;
  Status why_short_;  // why the last caller was turned away
  Time short_since_{};
  std::map<LineId, Connection> connections_;
  std::set<LineId> strangers_;             // the oldest first
  std::map<LineId, std::uint32_t> ready_;  // the ready events, by line, and the listener's
  bool hears_knocks_ = false;
  std::vector<Event> events_;
  LineId last_ = 0;
};

}  // namespace hccl::join
