#include "transport/tcp/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace hccl::transport::tcp {
namespace {

constexpr std::size_t kFramesPerCall = 32;
// Large messages are cut into frames only this far ahead, so that small ones soon get their turn.
constexpr std::size_t kPayloadAhead = 2 * kFragment;

// Less than this is put together by a copy: the plain call is cheaper than one that gathers.
constexpr std::size_t kLittle = 2048;

ssize_t send(int fd, std::span<iovec> pieces) {
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  if (total <= kLittle) {
    std::array<std::byte, kLittle> little;
    std::size_t at = 0;
    for (const iovec& piece : pieces) {
      if (piece.iov_len != 0) std::memcpy(little.data() + at, piece.iov_base, piece.iov_len);
      at += piece.iov_len;
    }
    return ::send(fd, little.data(), total, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

void Outbox::put(const FrameHeader& header) {
  frames_.push_back({header, nullptr, nullptr, false});
}

void Outbox::put(const FrameHeader& header, Request& request) {
  frames_.push_back({header, request.data_, &request, true});
  payload_queued_ += request.size_;
}

void Outbox::stream(Request& request, std::uint32_t sequence) {
  streams_.push_back({&request, sequence});
}

void Outbox::top_up() {
  while (!streams_.empty() && payload_queued_ < kPayloadAhead) {
    const Stream stream = streams_.front();
    streams_.pop_front();
    Request& request = *stream.request;
    const std::size_t length = std::min(kFragment, request.size_ - request.moved_);
    const FrameHeader header{FrameType::kData, static_cast<std::uint8_t>(request.lane_), 0,
                             stream.sequence, length};
    const std::byte* payload = request.data_ + request.moved_;
    request.moved_ += length;
    const bool last = request.moved_ == request.size_;
    frames_.push_back({header, payload, &request, last});
    payload_queued_ += length;
    if (!last) streams_.push_back(stream);
  }
}

Outbox::Written Outbox::write(int fd, std::size_t& moved) {
  std::size_t turn = 0;
  for (;;) {
    top_up();
    if (frames_.empty()) return Written::kAll;
    if (turn >= kBytesPerTurn) return Written::kBlocked;

    std::array<iovec, 2 * kFramesPerCall> pieces;
    std::size_t count = 0;
    std::size_t skip = front_written_;
    const auto add = [&](const void* data, std::size_t size) {
      if (skip >= size) {
        skip -= size;
        return;
      }
      pieces[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, size - skip};
      skip = 0;
    };
    for (std::size_t i = 0; i < std::min(frames_.size(), kFramesPerCall); ++i) {
      add(&frames_[i].header, sizeof(FrameHeader));
      add(frames_[i].payload, payload_size(frames_[i]));
    }
    const ssize_t sent = send(fd, std::span(pieces).first(count));
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? Written::kBlocked : Written::kFailed;
    }
    consume(static_cast<std::size_t>(sent));
    turn += static_cast<std::size_t>(sent);
    moved += static_cast<std::size_t>(sent);
  }
}

void Outbox::consume(std::size_t bytes) {
  front_written_ += bytes;
  while (!frames_.empty()) {
    const Frame& front = frames_.front();
    const std::size_t payload = payload_size(front);
    if (front_written_ < sizeof(FrameHeader) + payload) break;
    front_written_ -= sizeof(FrameHeader) + payload;
    payload_queued_ -= payload;
    if (front.last) front.request->finish();
    frames_.pop_front();
  }
}

void Outbox::fail(const Status& status) {
  // A request may have several frames here and more to come: the first one found fails it.
  const auto fail_once = [&](Request* request) {
    if (request != nullptr && !request->done()) request->finish(status);
  };
  for (const Frame& frame : frames_) fail_once(frame.request);
  for (const Stream& stream : streams_) fail_once(stream.request);
  frames_.clear();
  streams_.clear();
  front_written_ = 0;
  payload_queued_ = 0;
}

}  // namespace hccl::transport::tcp
