#include "transport/tcp/link.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hccl/base/error_text.h"
#include "hccl/base/socket.h"
#include "transport/self_link.h"

namespace hccl::transport::tcp {
namespace {

// The most bytes that one read takes beyond the end of a payload.
constexpr std::size_t kHeadersAhead = 512;

// After a rank has received altered bytes, it waits at most this long until the peer has read the
// complaint.
constexpr std::chrono::milliseconds kComplaintTime{250};

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
  if (known) {
    lane.ready.erase(ready);
    --ready_;
  }

  if (known && posted == bytes.size()) {
    outbox_.stream(request, sequence);
  } else if (bytes.size() <= share_.eager.limit && bytes.size() + kEagerCost <= room_) {
    room_ -= bytes.size() + kEagerCost;
    outbox_.put({FrameType::kEager, tag, 0, sequence, bytes.size()}, request);
  } else if (known) {
    // The posted receive has another size: this frame makes the receive fail.
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

// Sends a credit frame alone once the room to announce is half of the window. If other frames wait,
// write() announces an eighth of the window already.
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
  // Bytes that epoll does not report would not wake a sleeper, so all of them are read.
  while (connected() && (turn < kBytesPerTurn || connection_.pending())) {
    // If a payload has begun, reads the payload directly into its destination, and only a few bytes
    // behind it: then the next payload can be read directly, too.
    const bool straight = payload_.left > 0 && payload_.target != nullptr;
    std::array<iovec, 2> pieces{};
    if (straight) pieces[0] = {payload_.target, payload_.left};
    pieces[1] = {stage.data(), straight ? kHeadersAhead : stage.size()};
    const auto got = connection_.read(pieces);
    if (!got.ok()) {
      lost(got.status());
      return true;
    }
    if (*got == 0) break;
    turn += *got;
    const std::size_t direct = std::min(*got, pieces[0].iov_len);
    if (direct > 0 && !take({payload_.target, direct})) return true;
    if (!parse({stage.data(), *got - direct})) return true;
    const bool whole = *got == pieces[0].iov_len + pieces[1].iov_len;
    if (!whole && !connection_.pending()) break;
  }
  return turn > 0;
}

bool Link::parse(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (payload_.left > 0) {
      const std::size_t part = std::min(bytes.size(), payload_.left);
      if (payload_.target != nullptr) std::memcpy(payload_.target, bytes.data(), part);
      if (!take(bytes.first(part))) return false;
      bytes = bytes.subspan(part);
      continue;
    }
    const std::size_t part = std::min(bytes.size(), head_ - header_bytes_);
    std::memcpy(header_.data() + header_bytes_, bytes.data(), part);
    bytes = bytes.subspan(part);
    header_bytes_ += part;
    if (header_bytes_ < head_) break;
    header_bytes_ = 0;
    SummedHeader frame{};
    std::memcpy(&frame, header_.data(), head_);
    if (summed() && header_sum(frame, frames_++) != frame.sums.header) return complain();
    payload_sum_ = frame.sums.payload;
    if (!on_frame(frame.header)) return false;
  }
  return true;
}

bool Link::take(std::span<const std::byte> bytes) {
  payload_.left -= bytes.size();
  if (payload_.target != nullptr) payload_.target += bytes.size();
  if (summed()) payload_.sum = crc32c(payload_.sum, bytes);
  return payload_.left != 0 || end_payload();
}

bool Link::end_payload() {
  if (summed() && payload_.sum != payload_sum_) return complain();
  settle(payload_);
  return true;
}

void Link::settle(const Payload done) {
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

bool Link::write() {
  if (!connected()) return false;
  if (to_give_ >= share_.eager.window / 8 && !outbox_.empty()) announce_room();
  std::size_t moved = 0;
  const Status written = outbox_.write(connection_, moved);
  if (!written.ok()) {
    // The peer has closed. Reads the bytes that the peer sent before; the read after the last of
    // them ends the link.
    while (alive() && read()) {
    }
    if (alive()) lost(written);
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

void Link::lost(const Status& why) {
  if (why.code() == Code::kRemote) {  // TLS has sent the peer an alert
    linger(Deadline::after(kComplaintTime));
    return corrupted(why.message());
  }
  if (why.code() == Code::kTimeout) return cut_off(why.message());
  fail(Status(Code::kRemote,
              "rank " + std::to_string(peer_) + std::string(kClosedByPeer) + std::to_string(rank_) +
                  (why.message().empty() ? "" : " (" + why.message() + ")"),
              peer_));
}

void Link::cut_off(const std::string& fault) {
  fail(Status(Code::kRemote,
              "the path from rank " + std::to_string(rank_) + " to rank " + std::to_string(peer_) +
                  " does not work (" + fault +
                  "); the connection is closed. Check the network between their hosts: cables, "
                  "switches, firewalls",
              peer_));
}

void Link::corrupted(const std::string& how) {
  fail(Status(Code::kRemote,
              "data between rank " + std::to_string(rank_) + " and rank " + std::to_string(peer_) +
                  " was corrupted on the way (" + how +
                  "); the connection is closed. Check the network between their hosts: cables, "
                  "adapters, drivers, whoever may reach it",
              peer_));
}

// Closing a socket with unread bytes would discard the bytes written last.
void Link::linger(Deadline end) {
  ::shutdown(connection_.fd(), SHUT_WR);
  for (;;) {
    const ssize_t got = ::recv(connection_.fd(), share_.stage.data(), share_.stage.size(), 0);
    if (got > 0 && !end.expired()) continue;
    if (got >= 0 || errno != EAGAIN || !wait_fd(connection_.fd(), POLLIN, end).ok()) return;
  }
}

// Sends the complaint before the requests fail, because a half-written frame needs their bytes.
bool Link::complain() {
  const Deadline end = Deadline::after(kComplaintTime);
  const std::string words = outbox_.last_words({FrameType::kCorrupted, 0, 0, 0, 0});
  if (send_all(connection_.fd(), words, end).ok()) linger(end);
  corrupted("rank " + std::to_string(rank_) + " got a frame whose checksum does not match");
  return false;
}

void Link::fail(const Status& status) {
  if (!alive()) return;
  dead_ = status;
  if (connected()) {
    // A forked child may hold the socket, too, so closing alone would not end the events.
    ::epoll_ctl(share_.epoll, EPOLL_CTL_DEL, connection_.fd(), nullptr);
    connection_.finish();
    connection_.reset();
  }
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
