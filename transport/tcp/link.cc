#include "transport/tcp/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/self_link.h"

namespace hccl::transport::tcp {
namespace {

// Bytes read beyond the end of a payload.
constexpr std::size_t kHeadersAhead = 512;

/// Sequences ascend in a lane's queue, and the match is nearly always the first entry.
template <class Queue>
auto find(Queue& queue, std::uint32_t sequence) {
  return std::find_if(queue.begin(), queue.end(),
                      [=](const auto& entry) { return entry.sequence == sequence; });
}

/// Whether `a` comes before `b`, also after the counter wrapped.
bool before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

}  // namespace

Link::Lane& Link::lane(std::uint32_t number) {
  std::unique_ptr<Lane>& slot = lanes_[number];
  if (slot == nullptr) {
    slot = std::make_unique<Lane>();
    used_.push_back(slot.get());
  }
  return *slot;
}

bool Link::expects() const {
  if (payload_.left > 0 || header_bytes_ > 0) return true;
  return std::any_of(used_.begin(), used_.end(), [](const Lane* lane) {
    return !lane->posted.empty() || !lane->waiting.empty();
  });
}

void Link::put(FrameType type, std::uint8_t lane, std::uint32_t sequence, std::uint64_t length) {
  outbox_.put({type, lane, 0, sequence, length});
}

void Link::send(Request& request, std::uint32_t number, std::span<const std::byte> bytes) {
  request.begin(peer_, number, const_cast<std::byte*>(bytes.data()), bytes.size());
  if (!alive()) return request.finish(dead_);
  Lane& lane = this->lane(number);
  const auto tag = static_cast<std::uint8_t>(number);
  const std::uint32_t sequence = lane.next_send++;
  const auto ready = find(lane.ready, sequence);
  const bool known = ready != lane.ready.end();
  const std::uint64_t posted = known ? ready->size : 0;
  if (known) lane.ready.erase(ready);

  if (known && posted == bytes.size()) {
    outbox_.stream(request, sequence);
  } else if (bytes.size() <= share_.eager.limit && bytes.size() + kEagerCost <= room_) {
    room_ -= bytes.size() + kEagerCost;
    outbox_.put({FrameType::kEager, tag, 0, sequence, bytes.size()}, request);
  } else if (known) {
    // The receive has another size: tell it, so that it fails.
    put(FrameType::kAsk, tag, sequence, bytes.size());
    request.finish();
  } else {
    lane.waiting.push_back({&request, sequence});
    ask(lane, tag);
  }
}

void Link::ask(Lane& lane, std::uint8_t number) {
  while (lane.asked < std::min(lane.waiting.size(), kAskWindow)) {
    const Waiting& next = lane.waiting[lane.asked++];
    put(FrameType::kAsk, number, next.sequence, next.request->size_);
  }
}

void Link::recv(Request& request, std::uint32_t number, std::span<std::byte> bytes) {
  request.begin(peer_, number, bytes.data(), bytes.size());
  Lane& lane = this->lane(number);
  const auto tag = static_cast<std::uint8_t>(number);
  const std::uint32_t sequence = lane.next_recv++;
  const auto message = find(lane.arrived, sequence);
  if (message == lane.arrived.end()) {
    if (!alive()) return request.finish(dead_);
    const bool announce = bytes.size() > share_.eager.limit;
    lane.posted.push_back({&request, sequence, announce});
    if (announce) put(FrameType::kReady, tag, sequence, bytes.size());
    return;
  }
  if (message->bytes != nullptr) {
    if (!message->complete) {
      message->taker = &request;
      return;
    }
    deliver(request, *message);
    lane.arrived.erase(message);
    return;
  }
  const std::uint64_t sent = message->size;
  lane.arrived.erase(message);
  --lane.asked_of_us;
  if (!alive()) return request.finish(dead_);
  put(FrameType::kReady, tag, sequence, bytes.size());
  if (sent != bytes.size()) {
    request.finish(size_mismatch(peer_, number, bytes.size(), sent));
  } else {
    lane.posted.push_back({&request, sequence, true});
  }
}

void Link::deliver(Request& request, Arrived& message) {
  give_back(message.size + kEagerCost);
  if (message.size != request.size_) {
    request.finish(size_mismatch(peer_, request.lane_, request.size_, message.size));
    return;
  }
  if (message.size != 0) std::memcpy(request.data_, message.bytes.get(), message.size);
  share_.early.give_back(std::move(message.bytes), message.size);
  request.finish();
}

// Room is announced with the next frames that go there anyhow, and for itself once it is half of
// the window.
void Link::give_back(std::size_t room) {
  to_give_ += room;
  if (to_give_ >= share_.eager.window / 2 && alive()) announce_room();
}

void Link::announce_room() {
  owed_ -= to_give_;
  put(FrameType::kCredit, 0, 0, to_give_);
  to_give_ = 0;
}

bool Link::read() {
  std::array<std::byte, sizeof share_.stage>& stage = share_.stage;
  std::size_t turn = 0;
  while (alive() && turn < kBytesPerTurn) {
    // A payload that has begun goes straight where it belongs. Behind it only the next headers are
    // wanted: the payload after it goes straight, too.
    const bool straight = payload_.left > 0 && payload_.target != nullptr;
    std::array<iovec, 2> pieces{};
    if (straight) pieces[0] = {payload_.target, payload_.left};
    pieces[1] = {stage.data(), straight ? kHeadersAhead : stage.size()};
    // The plain call is the cheaper one.
    const ssize_t got =
        straight ? ::readv(fd_.get(), pieces.data(), static_cast<int>(pieces.size()))
                 : ::recv(fd_.get(), pieces[1].iov_base, pieces[1].iov_len, MSG_DONTWAIT);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      closed(got == 0 ? "" : std::strerror(errno));
      return true;
    }
    const auto bytes = static_cast<std::size_t>(got);
    turn += bytes;
    const std::size_t direct = std::min(bytes, pieces[0].iov_len);
    if (direct > 0) take(direct);
    if (!parse({stage.data(), bytes - direct})) return true;
    if (bytes < pieces[0].iov_len + pieces[1].iov_len) break;  // the socket is empty
  }
  return turn > 0;
}

bool Link::parse(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (payload_.left > 0) {
      const std::size_t part = std::min(bytes.size(), payload_.left);
      if (payload_.target != nullptr) std::memcpy(payload_.target, bytes.data(), part);
      bytes = bytes.subspan(part);
      take(part);
      continue;
    }
    const std::size_t part = std::min(bytes.size(), header_.size() - header_bytes_);
    std::memcpy(header_.data() + header_bytes_, bytes.data(), part);
    bytes = bytes.subspan(part);
    header_bytes_ += part;
    if (header_bytes_ < header_.size()) break;
    header_bytes_ = 0;
    FrameHeader header;
    std::memcpy(&header, header_.data(), sizeof header);
    if (!on_frame(header)) return false;
  }
  return true;
}

void Link::take(std::size_t bytes) {
  payload_.left -= bytes;
  if (payload_.target != nullptr) payload_.target += bytes;
  if (payload_.left == 0) end_payload();
}

void Link::end_payload() {
  const Payload done = payload_;
  payload_ = {};
  Lane& lane = this->lane(done.lane);
  if (done.request != nullptr) {
    if (done.eager) return done.request->finish();
    const auto posted = find(lane.posted, done.sequence);
    if (posted->request->moved_ < posted->request->size_) return;
    Request& request = *posted->request;
    lane.posted.erase(posted);
    return request.finish();
  }
  if (done.target == nullptr && !done.eager) return;
  const auto message = find(lane.arrived, done.sequence);
  if (message == lane.arrived.end()) return;
  message->complete = true;
  if (message->taker == nullptr) return;
  deliver(*message->taker, *message);
  lane.arrived.erase(message);
}

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
      payload_.eager = false;  // nobody wants these bytes
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
  if (size == 0) end_payload();
  return true;
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
    // Our message may be on its way already, eagerly; then the receiver sees the sizes.
    if (before(header.sequence, lane.next_send)) return true;
    if (lane.ready.size() >= kReadyCap) return broken("too many posted receives");
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
  if (size == 0) end_payload();
  return true;
}

bool Link::write() {
  if (!alive()) return false;
  if (to_give_ >= share_.eager.window / 8 && !outbox_.empty()) announce_room();
  std::size_t moved = 0;
  if (outbox_.write(fd_.get(), moved) == Outbox::Written::kFailed) {
    // The peer has gone; what it had sent before still counts, and reading finds the end.
    const std::string why = std::strerror(errno);
    while (alive() && read()) {
    }
    if (alive()) closed(why);
    return true;
  }
  return moved > 0;
}

bool Link::broken(const std::string& what) {
  fail(Status(Code::kTcpTransfer,
              "rank " + std::to_string(peer_) + " sent rank " + std::to_string(rank_) + " " + what +
                  "; the connection is closed",
              peer_));
  return false;
}

void Link::closed(const std::string& why) {
  fail(Status(Code::kRemote,
              "rank " + std::to_string(peer_) + " closed its connection to rank " +
                  std::to_string(rank_) + (why.empty() ? "" : " (" + why + ")"),
              peer_));
}

void Link::fail(const Status& status) {
  if (!alive()) return;
  dead_ = status;
  // A forked child may hold the socket, too: closing alone would neither end the events nor tell
  // the peer.
  ::epoll_ctl(share_.epoll, EPOLL_CTL_DEL, fd_.get(), nullptr);
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
  outbox_.fail(status);
  if (payload_.request != nullptr && !payload_.request->done()) payload_.request->finish(status);
  payload_ = {};
  header_bytes_ = 0;
  for (const auto& lane : lanes_) {
    if (lane == nullptr) continue;
    for (const Waiting& waiting : lane->waiting) waiting.request->finish(status);
    lane->waiting.clear();
    for (const Posted& posted : lane->posted) {
      if (!posted.request->done()) posted.request->finish(status);
    }
    lane->posted.clear();
    for (const Arrived& message : lane->arrived) {
      if (message.taker != nullptr) message.taker->finish(status);
    }
    lane->arrived.erase_if([](const Arrived& message) { return !message.complete; });
  }
}

}  // namespace hccl::transport::tcp
