#include "transport/tcp/outbox.h"

#include <sys/uio.h>

#include <algorithm>
#include <span>

namespace hccl::transport::tcp {
namespace {

constexpr std::size_t kFramesPerCall = 32;
// Large messages are cut into frames only while fewer bytes than this are queued, so that small
// messages are sent soon.
constexpr std::size_t kPayloadAhead = 2 * kFragment;
// The bytes of frames whose sums one call computes: these bytes are still in a cache when they are
// written.
constexpr std::size_t kSummedPerCall = kFragment;

}  // namespace

void Outbox::put(const FrameHeader& header) {
  frames_.push_back({{header, {}}, nullptr, nullptr, false});
}

void Outbox::put(const FrameHeader& header, Request& request) {
  frames_.push_back({{header, {}}, request.data_, &request, true});
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
    frames_.push_back({{header, {}}, payload, &request, last});
    payload_queued_ += length;
    if (!last) streams_.push_back(stream);
  }
}

// Runs just before the bytes are written, so that the sum and the write read them from a cache.
void Outbox::seal(Frame& frame) {
  const std::size_t size = payload_size(frame);
  frame.head.sums.payload = size == 0 ? 0 : crc32c(0, {frame.payload, size});
  frame.head.sums.header = header_sum(frame.head, number_++);
}

Status Outbox::write(Connection& connection, std::size_t& moved) {
  std::size_t turn = 0;
  for (;;) {
    top_up();
    if (frames_.empty() || turn >= kBytesPerTurn) return {};

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
    const std::size_t most = std::min(frames_.size(), kFramesPerCall);
    std::size_t summed_now = 0;
    for (std::size_t i = 0; i < most && summed_now < kSummedPerCall; ++i) {
      if (summed() && i >= sealed_) {
        seal(frames_[i]);
        ++sealed_;
        summed_now += payload_size(frames_[i]);
      }
      add(&frames_[i].head, head_);
      add(frames_[i].payload, payload_size(frames_[i]));
    }
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, connection.write(std::span(pieces).first(count)));
    if (sent == 0) return {};
    consume(sent);
    turn += sent;
    moved += sent;
  }
}

std::string Outbox::last_words(const FrameHeader& header) {
  std::string bytes;
  const auto add = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  if (front_written_ > 0) {
    Frame& front = frames_.front();
    add(&front.head, head_);
    add(front.payload, payload_size(front));
    bytes.erase(0, front_written_);
  }
  number_ -= sealed_ - (front_written_ > 0 ? 1 : 0);  // forgets the frames that will not be sent
  Frame last{{header, {}}, nullptr, nullptr, false};
  seal(last);
  add(&last.head, head_);
  return bytes;
}

void Outbox::consume(std::size_t bytes) {
  front_written_ += bytes;
  while (!frames_.empty()) {
    const Frame& front = frames_.front();
    const std::size_t payload = payload_size(front);
    if (front_written_ < head_ + payload) break;
    front_written_ -= head_ + payload;
    if (summed()) --sealed_;
    payload_queued_ -= payload;
    if (front.last) front.request->finish();
    frames_.pop_front();
  }
}

void Outbox::fail(const Status& status) {
  // A request may have several frames here: the first one fails it.
  const auto fail_once = [&](Request* request) {
    if (request != nullptr && !request->done()) request->finish(status);
  };
  for (const Frame& frame : frames_) fail_once(frame.request);
  for (const Stream& stream : streams_) fail_once(stream.request);
  frames_.clear();
  streams_.clear();
  front_written_ = 0;
  sealed_ = 0;
  payload_queued_ = 0;
}

}  // namespace hccl::transport::tcp
