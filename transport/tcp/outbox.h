// The frames that wait, in order, to be written to one connection, and the large messages that take
// turns to become frames.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "hccl/base/queue.h"
#include "hccl/base/status.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/frame.h"
#include "transport/transport.h"

namespace hccl::transport::tcp {

/// Payloads are sent directly from the caller's bytes. Only the thread of the mesh uses it.
class Outbox {
 public:
  explicit Outbox(bool summed) : head_(summed ? sizeof(SummedHeader) : sizeof(FrameHeader)) {}

  /// Adds a frame without payload.
  void put(const FrameHeader& header);
  /// Adds a frame whose payload is the whole message of `request`. The request is done once the
  /// frame is written.
  void put(const FrameHeader& header, Request& request);
  /// Adds a large message, which is sent in kData frames, in turn with other large messages. The
  /// request's moved_ must be 0.
  void stream(Request& request, std::uint32_t sequence);

  /// Writes as many bytes as the connection takes, several frames in each call. Adds their number
  /// to `moved`.
  Status write(Connection& connection, std::size_t& moved);
  bool empty() const { return frames_.empty() && streams_.empty(); }
  /// Returns the rest of the half-written frame, and after it `header` as the last frame.
  std::string last_words(const FrameHeader& header);
  /// Fails all requests in the outbox and removes their frames.
  void fail(const Status& status);

 private:
  struct Frame {
    SummedHeader head{};
    const std::byte* payload = nullptr;
    Request* request = nullptr;  ///< the request that has these bytes
    bool last = false;           ///< this frame completes the request
  };
  struct Stream {
    Request* request = nullptr;
    std::uint32_t sequence = 0;
  };
  void top_up();
  bool summed() const { return head_ == sizeof(SummedHeader); }
  void seal(Frame& frame);
  void consume(std::size_t bytes);
  static std::size_t payload_size(const Frame& frame) {
    return frame.request == nullptr ? 0 : static_cast<std::size_t>(frame.head.header.length);
  }

  Queue<Frame> frames_;
  Queue<Stream> streams_;
  std::size_t head_;               ///< bytes of a header on the wire
  std::size_t sealed_ = 0;         ///< this many of frames_, from the front, have their sums
  std::uint64_t number_ = 0;       ///< of the next frame that is sealed
  std::size_t front_written_ = 0;  ///< bytes of frames_.front(), header included, that were sent
  std::size_t payload_queued_ = 0;
};

}  // namespace hccl::transport::tcp
