// The connection to one peer: reads and writes the socket, and matches messages with receives by
// the eager and the ready-to-receive protocol. README.md describes the protocol.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/queue.h"
#include "hccl/base/status.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/early.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/outbox.h"
#include "transport/transport.h"

namespace hccl::transport::tcp {

/// The state that the links of one mesh share. Only the thread of the mesh uses it.
struct LinkShare {
  LinkShare(std::size_t ranks, int set)
      : eager(eager_among(ranks)), early(kEagerTotal), epoll(set) {}

  const Eager eager;
  EarlyBuffers early;
  int epoll;  ///< the mesh's epoll set; fail() removes the link's socket from the set
  std::array<std::byte, 16 * 1024> stage;  ///< buffer for headers and small payloads
};

/// Only the thread of the mesh uses it. Requests may be posted before the link has a connection. A
/// link is alive until its peer closes, the connection breaks or fail() is called. Then its
/// requests have failed and its socket is closed. Complete messages that arrived before still go to
/// receives that are posted later.
class Link {
 public:
  /// `share` must outlive the link. `summed`: frames have checksums.
  Link(int rank, int peer, bool summed, LinkShare& share)
      : rank_(rank),
        peer_(peer),
        head_(summed ? sizeof(SummedHeader) : sizeof(FrameHeader)),
        share_(share),
        outbox_(summed),
        room_(share.eager.window) {}

  /// Call once, on a link that is alive.
  void connect(Connection connection) { connection_ = std::move(connection); }
  bool connected() const { return connection_.valid(); }
  bool alive() const { return dead_.ok(); }
  int fd() const { return connection_.fd(); }

  /// Post a request. Only write() writes bytes.
  void send(Request& request, std::uint32_t lane, std::span<const std::byte> bytes);
  void recv(Request& request, std::uint32_t lane, std::span<std::byte> bytes);

  bool has_output() const { return connected() && !outbox_.empty(); }
  /// Returns whether a request waits for bytes, or a frame has begun to arrive. Otherwise arriving
  /// bytes may stay in the socket for a while.
  bool expects() const;
  /// Read the arrived bytes, or write the waiting ones, without blocking. True if bytes moved or
  /// the link died.
  bool read();
  bool write();
  /// Whether bytes have arrived that epoll does not report.
  bool pending() const { return connected() && connection_.pending(); }
  /// With TLS, tells the peer that no bytes follow. Call it after the last write().
  void finish() { connection_.finish(); }
  /// Ends the link because the path to the peer's host does not work; `fault` is the reason.
  void cut_off(const std::string& fault);
  /// Fails all requests of the link and closes the socket.
  void fail(const Status& status);

 private:
  /// A message that came before its receive.
  struct Arrived {
    std::uint32_t sequence = 0;
    std::uint64_t size = 0;
    std::unique_ptr<std::byte[]> bytes;  ///< null: the bytes wait at the sender (kAsk)
    bool complete = false;
    Request* taker = nullptr;  ///< a receive posted while the bytes still come in
  };
  struct Posted {
    Request* request = nullptr;
    std::uint32_t sequence = 0;
    bool ready_sent = false;
  };
  struct Waiting {
    Request* request = nullptr;
    std::uint32_t sequence = 0;
  };
  struct Ready {
    std::uint32_t sequence = 0;
    std::uint64_t size = 0;
  };
  /// Both directions of one lane.
  struct Lane {
    std::uint32_t next_send = 0;
    std::uint32_t next_recv = 0;
    Queue<Posted> posted;         ///< receives without their message
    Queue<Arrived> arrived;       ///< messages without their receive
    Queue<Waiting> waiting;       ///< sends whose receive is not known to be posted
    std::size_t asked = 0;        ///< number of entries of `waiting`, from the front, that have
                                  ///< sent kAsk
    std::size_t asked_of_us = 0;  ///< kAsk entries in `arrived`
    Queue<Ready> ready;           ///< receives of the peer that are posted before our send
  };
  /// The destination of the payload that is arriving.
  struct Payload {
    std::size_t left = 0;
    std::byte* target = nullptr;  ///< null: thrown away
    Request* request = nullptr;   ///< the receive of these bytes, if it is posted
    bool eager = false;           ///< a whole eager message; completes its request
    std::uint8_t lane = 0;
    std::uint32_t sequence = 0;
    std::uint32_t sum = 0;  ///< the sum of the bytes so far
  };

  /// Searches from the front: sequences ascend in a lane's queue, and the match is nearly always
  /// the first entry.
  template <class Entries>
  static auto find(Entries& entries, std::uint32_t sequence) {
    return std::find_if(entries.begin(), entries.end(),
                        [=](const auto& entry) { return entry.sequence == sequence; });
  }
  bool summed() const { return head_ == sizeof(SummedHeader); }
  Lane& lane(std::uint32_t number);
  void put(FrameType type, std::uint8_t lane, std::uint32_t sequence, std::uint64_t length);
  void ask(Lane& lane, std::uint8_t number);
  void give_back(std::size_t room);
  void announce_room();
  void deliver(Request& request, Arrived& message);

  /// Handles the bytes that were read. Returns false if the link has ended.
  bool parse(std::span<const std::byte> bytes);
  bool on_frame(const FrameHeader& header);
  bool on_eager(const FrameHeader& header);
  bool on_ask(const FrameHeader& header);
  bool on_ready(const FrameHeader& header);
  bool on_data(const FrameHeader& header);
  bool take(std::span<const std::byte> bytes);
  bool end_payload();
  void settle(Payload done);
  bool broken(const std::string& what);
  void lost(const Status& why);
  void linger(Deadline end);
  bool complain();
  void corrupted(const std::string& how);

  int rank_;
  int peer_;
  Connection connection_;
  std::size_t head_;  ///< bytes of a header on the wire
  LinkShare& share_;
  Status dead_;
  std::array<std::unique_ptr<Lane>, Mesh::kLanes> lanes_;
  std::vector<const Lane*> used_;  ///< the entries of lanes_ that exist
  Outbox outbox_;
  std::size_t room_;         ///< bytes that this rank may still send eagerly
  std::size_t ready_ = 0;    ///< entries in `ready` of all lanes
  std::size_t owed_ = 0;     ///< eager bytes of the peer whose credit was not returned
  std::size_t to_give_ = 0;  ///< bytes of owed_ whose credit can be returned
  Payload payload_;
  std::uint32_t payload_sum_ = 0;                       ///< the sum that payload_ must have
  std::uint64_t frames_ = 0;                            ///< number of headers that have arrived
  std::array<std::byte, sizeof(SummedHeader)> header_;  ///< the header of the next frame
  std::size_t header_bytes_ = 0;                        ///< bytes of header_ that have arrived
};

}  // namespace hccl::transport::tcp
