// Handles each type of frame.
#include <string>

#include "transport/self_link.h"
#include "transport/tcp/link.h"

namespace hccl::transport::tcp {
namespace {

/// Whether `a` comes before `b`, also after the counter wrapped.
bool before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

}  // namespace

bool Link::on_frame(const FrameHeader& header) {
  if (header.reserved != 0) return broken("a frame with unknown flags");
  switch (header.type) {
    case FrameType::kEager:
      return on_eager(header);
    case FrameType::kAsk:
      return on_ask(header);
    case FrameType::kReady:
      return on_ready(header);
    case FrameType::kData:
      return on_data(header);
    case FrameType::kCredit:
      if (header.length > share_.eager.window - room_)
        return broken("more eager room than it took");
      room_ += header.length;
      return true;
    case FrameType::kCorrupted:
      if (!summed()) break;
      corrupted("rank " + std::to_string(peer_) + " says that a checksum does not match");
      return false;
  }
  return broken("a frame of unknown type");
}

bool Link::on_eager(const FrameHeader& header) {
  if (header.length > share_.eager.limit) return broken("an eager message that is too long");
  const std::size_t size = header.length;
  if (size + kEagerCost > share_.eager.window - owed_)
    return broken("more eager messages than allowed");
  owed_ += size + kEagerCost;
  Lane& lane = this->lane(header.lane);
  payload_ = {size, nullptr, nullptr, true, header.lane, header.sequence};

  const auto posted = find(lane.posted, header.sequence);
  if (posted != lane.posted.end()) {
    Request& request = *posted->request;
    if (request.moved_ != 0) return broken("a message twice");
    lane.posted.erase(posted);
    give_back(size + kEagerCost);
    if (request.size_ == size) {
      payload_.target = request.data_;
      payload_.request = &request;
    } else {
      payload_.eager = false;  // no receive takes these bytes
      request.finish(size_mismatch(peer_, header.lane, request.size_, size));
    }
  } else {
    if (before(header.sequence, lane.next_recv) ||
        find(lane.arrived, header.sequence) != lane.arrived.end()) {
      return broken("a message twice");
    }
    lane.arrived.push_back({header.sequence, size, share_.early.take(size)});
    payload_.target = lane.arrived.back().bytes.get();
  }
  return size != 0 || end_payload();
}

bool Link::on_ask(const FrameHeader& header) {
  Lane& lane = this->lane(header.lane);
  const auto posted = find(lane.posted, header.sequence);
  if (posted == lane.posted.end()) {
    if (before(header.sequence, lane.next_recv) || lane.asked_of_us >= kAskWindow ||
        find(lane.arrived, header.sequence) != lane.arrived.end()) {
      return broken("a question out of turn");
    }
    ++lane.asked_of_us;
    lane.arrived.push_back({header.sequence, header.length, nullptr});
    return true;
  }
  Request& request = *posted->request;
  if (!posted->ready_sent) {
    posted->ready_sent = true;
    put(FrameType::kReady, header.lane, header.sequence, request.size_);
  }
  if (header.length != request.size_) {
    if (request.moved_ != 0) return broken("a message twice");
    lane.posted.erase(posted);
    request.finish(size_mismatch(peer_, header.lane, request.size_, header.length));
  }
  return true;
}

bool Link::on_ready(const FrameHeader& header) {
  Lane& lane = this->lane(header.lane);
  const auto waiting = find(lane.waiting, header.sequence);
  if (waiting == lane.waiting.end()) {
    // This rank may already have sent the message eagerly; then the receiver sees both sizes.
    if (before(header.sequence, lane.next_send)) return true;
    if (ready_ >= kReadyCap) return broken("too many posted receives");
    ++ready_;
    lane.ready.push_back({header.sequence, header.length});
    return true;
  }
  Request& request = *waiting->request;
  const auto place = static_cast<std::size_t>(waiting - lane.waiting.begin());
  lane.waiting.erase(waiting);
  const bool asked = place < lane.asked;
  if (asked) --lane.asked;
  if (request.size_ == header.length) {
    outbox_.stream(request, header.sequence);
  } else {
    if (!asked) put(FrameType::kAsk, header.lane, header.sequence, request.size_);
    request.finish();
  }
  ask(lane, header.lane);
  return true;
}

bool Link::on_data(const FrameHeader& header) {
  Lane& lane = this->lane(header.lane);
  const auto posted = find(lane.posted, header.sequence);
  if (posted == lane.posted.end() || !posted->ready_sent) return broken("bytes nobody asked for");
  Request& request = *posted->request;
  if (header.length > request.size_ - request.moved_ ||
      (header.length == 0 && request.size_ != 0)) {
    return broken("more bytes than the receive has room for");
  }
  const std::size_t size = header.length;
  payload_ = {size,        request.size_ == 0 ? nullptr : request.data_ + request.moved_,
              &request,    false,
              header.lane, header.sequence};
  request.moved_ += size;
  return size != 0 || end_payload();
}

}  // namespace hccl::transport::tcp
