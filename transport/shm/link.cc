#include "transport/shm/link.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hccl::transport::shm {
namespace {

// A staged message costs this much beyond its bytes, so that the number of empty messages is
// bounded, too.
constexpr std::uint64_t kMessageCost = kLine;
// The smallest piece of a long message, except the last one. With less room the writer waits.
constexpr std::uint64_t kLeastPiece = 2048;

std::uint64_t cost_of(std::uint64_t bytes) { return bytes + kMessageCost; }

}  // namespace

Limits::Limits(std::uint64_t ring_bytes)
    : eager(std::min<std::uint64_t>(8192, ring_bytes / 16)),
      staging(ring_bytes / 4),
      piece(std::min<std::uint64_t>(std::uint64_t{64} << 10, ring_bytes / 8)),
      burst(2 * piece) {}

template <class Atomics>
BasicLink<Atomics>::BasicLink(int rank, int peer, RingWriter out, RingReader in,
                              RankState* peer_state, int wake_fd)
    : in_(in),
      out_(out),
      peer_state_(peer_state),
      limits_(in.size()),
      rank_(rank),
      peer_(peer),
      wake_fd_(wake_fd) {}

template <class Atomics>
auto BasicLink<Atomics>::lane(std::uint32_t number) -> LaneState& {
  // With many ranks most links carry nothing, and must take little memory.
  if (number >= lanes_.size()) lanes_.resize(number + 1);
  auto& lane = lanes_[number];
  if (lane == nullptr) {
    lane = std::make_unique<LaneState>();
    lane->number = number;
  }
  return *lane;
}

template <class Atomics>
void BasicLink<Atomics>::wake() {
  auto& asleep = peer_state_->asleep;
  if (asleep.load(std::memory_order_seq_cst) == 0) return;
  if (asleep.exchange(0, std::memory_order_seq_cst) == 0) return;  // another rank wakes it
  Atomics::notify(wake_fd_);
}

// Called after this rank gave the peer room, credit or a grant. Wakes the peer only if the peer
// waits for one of these.
template <class Atomics>
void BasicLink<Atomics>::wake_writer() {
  if (in_.control().waiting.load(std::memory_order_seq_cst) != 0) wake();
}

template <class Atomics>
void BasicLink<Atomics>::corrupt(const char* what) {
  fail(Status(Code::kTcpTransfer,
              "corrupt shared memory between rank " + std::to_string(rank_) + " and rank " +
                  std::to_string(peer_) + ": " + what,
              peer_));
}

template <class Atomics>
void BasicLink<Atomics>::fail(const Status& status) {
  if (failure_.ok()) failure_ = status;
  for (auto& lane : lanes_) {
    if (lane == nullptr) continue;
    while (!lane->sends.empty()) lane->sends.pop()->finish(failure_);
    while (!lane->receives.empty()) lane->receives.pop()->finish(failure_);
    lane->sending = lane->listed = lane->receiving = false;
  }
  active_.clear();
}

template <class Atomics>
void BasicLink<Atomics>::close() {
  out_.close();
  wake();
}

template <class Atomics>
bool BasicLink<Atomics>::progress() {
  if (!failure_.ok()) return false;
  bool moved = drain();
  if (!active_.empty()) moved |= push();
  return moved;
}

// ---- sending ----

template <class Atomics>
void BasicLink<Atomics>::send(Request& request) {
  if (!failure_.ok()) {
    request.finish(failure_);
    return;
  }
  LaneState& to = lane(request.lane_);
  to.sends.push(request);
  if (to.listed) return;
  to.listed = true;
  active_.push_back(&to);
  push();
}

template <class Atomics>
bool BasicLink<Atomics>::push() {
  bool moved = push_active();
  if (!active_.empty() && !waiting_) {
    // Publishes the wait, then tries once more, because the reader may have freed room in between.
    waiting_ = true;
    out_.control().waiting.store(1, std::memory_order_seq_cst);
    moved |= push_active();
  }
  if (active_.empty() && waiting_) {
    waiting_ = false;
    out_.control().waiting.store(0, std::memory_order_relaxed);
  }
  if (moved) wake();
  return moved;
}

template <class Atomics>
bool BasicLink<Atomics>::push_active() {
  bool moved = false;
  const std::uint64_t stop = out_.position() + limits_.burst;
  std::size_t i = 0;
  while (i < active_.size()) {
    LaneState& lane = *active_[i];
    Pushed pushed = Pushed::kMoved;
    while (!lane.sends.empty() && pushed == Pushed::kMoved && out_.position() < stop) {
      pushed = push_piece(lane);
      moved |= pushed == Pushed::kMoved;
    }
    if (pushed == Pushed::kFailed) return true;
    if (lane.sends.empty()) {
      lane.listed = false;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
    if (pushed == Pushed::kFull || out_.position() >= stop) break;
  }
  // The next call begins with the next lane.
  if (active_.size() > 1) std::rotate(active_.begin(), active_.begin() + 1, active_.end());
  return moved;
}

template <class Atomics>
auto BasicLink<Atomics>::push_piece(LaneState& lane) -> Pushed {
  Request& request = *lane.sends.front();
  const std::uint64_t left = request.size_ - request.moved_;
  bool eager = false;
  if (!lane.sending) {
    eager = request.size_ <= limits_.eager && has_credit(cost_of(request.size_));
    if (!eager) {
      if (!failure_.ok()) return Pushed::kFailed;
      const std::uint32_t posted =
          out_.control().posted[lane.number].load(std::memory_order_seq_cst);
      if (static_cast<std::int32_t>(posted - lane.sent) <= 0) return Pushed::kBlocked;
    }
  }
  const std::uint64_t wanted = std::min(left, limits_.piece);
  const std::int64_t room = out_.room(wanted);
  if (out_.corrupt()) {
    corrupt("impossible position of the reader");
    return Pushed::kFailed;
  }
  if (room < static_cast<std::int64_t>(eager ? left : std::min(left, kLeastPiece))) {
    return Pushed::kFull;
  }
  Frame frame;
  frame.total = request.size_;
  frame.piece = static_cast<std::uint32_t>(std::min(wanted, static_cast<std::uint64_t>(room)));
  frame.lane = static_cast<std::uint16_t>(lane.number);
  frame.eager = eager;
  out_.put(frame, request.data_ + request.moved_);
  if (eager) eager_sent_ += cost_of(request.size_);
  request.moved_ += frame.piece;
  lane.sending = request.moved_ != request.size_;
  if (!lane.sending) {
    ++lane.sent;
    lane.sends.pop()->finish();
  }
  return Pushed::kMoved;
}

template <class Atomics>
bool BasicLink<Atomics>::has_credit(std::uint64_t cost) {
  if (eager_sent_ - eager_taken_seen_ + cost <= limits_.staging) return true;
  const std::uint64_t taken = out_.control().eager_taken.load(std::memory_order_seq_cst);
  if (taken < eager_taken_seen_ || taken > eager_sent_) {
    corrupt("impossible credit");
    return false;
  }
  eager_taken_seen_ = taken;
  return eager_sent_ - taken + cost <= limits_.staging;
}

// ---- receiving ----

template <class Atomics>
void BasicLink<Atomics>::recv(Request& request) {
  LaneState& from = lane(request.lane_);
  if (from.staged.empty() && !failure_.ok()) {
    request.finish(failure_);
    return;
  }
  in_.control().posted[from.number].store(++from.posted, std::memory_order_seq_cst);
  if (from.staged.empty()) {
    from.receives.push(request);
  } else {
    // A message that has arrived is delivered, even if the peer has left since.
    Staged message = std::move(from.staged.front());
    from.staged.pop_front();
    staged_cost_ -= cost_of(message.size);
    eager_taken_ += cost_of(message.size);
    in_.control().eager_taken.store(eager_taken_, std::memory_order_seq_cst);
    if (message.size != request.size_) {
      request.finish(size_mismatch(peer_, from.number, request.size_, message.size));
    } else {
      if (message.size != 0) std::copy_n(message.bytes.get(), message.size, request.data_);
      request.moved_ = message.size;
      request.finish();
    }
  }
  wake_writer();
}

template <class Atomics>
bool BasicLink<Atomics>::drain() {
  const bool closed = in_.closed();  // read first, so that frames sent before the end count
  const std::uint64_t start = in_.position();
  Frame frame;
  Peek next = Peek::kEmpty;
  while (in_.position() - start < limits_.burst && (next = in_.peek(frame)) == Peek::kFrame) {
    if (const char* wrong = take(frame); wrong != nullptr) {
      corrupt(wrong);
      return true;
    }
    in_.pop(frame);
    if (in_.position() - released_ >= limits_.piece) release();
  }
  if (next == Peek::kCorrupt) {
    corrupt("impossible frame");
    return true;
  }
  if (in_.position() != start) return true;
  // Small messages' room is released here, when the link has nothing else to do.
  if (in_.position() != released_) release();
  if (!closed || next != Peek::kEmpty) return false;
  fail(Status(Code::kRemote,
              "rank " + std::to_string(peer_) + " left while rank " + std::to_string(rank_) +
                  " was still connected to it",
              peer_));
  return true;
}

template <class Atomics>
void BasicLink<Atomics>::release() {
  released_ = in_.position();
  in_.control().eager_taken.store(eager_taken_, std::memory_order_seq_cst);
  in_.release();
  wake_writer();
}

// Returns a description of the frame's error, or null.
template <class Atomics>
const char* BasicLink<Atomics>::take(const Frame& frame) {
  if (frame.piece == 0 && frame.total != 0) return "an empty piece";
  LaneState& from = lane(frame.lane);
  return from.receiving || from.discard != 0 ? take_next(from, frame) : take_first(from, frame);
}

template <class Atomics>
const char* BasicLink<Atomics>::take_first(LaneState& from, const Frame& frame) {
  const std::uint64_t cost = cost_of(frame.piece);
  if (frame.eager && (frame.piece != frame.total || frame.total > limits_.eager)) {
    return "an eager message that is too long";
  }
  if (from.receives.empty()) {
    if (!frame.eager) return "a message that was not asked for";
    if (staged_cost_ + cost > limits_.staging) return "more unasked messages than allowed";
    Staged message{std::make_unique_for_overwrite<std::byte[]>(frame.piece), frame.piece};
    in_.copy(frame, message.bytes.get());
    staged_cost_ += cost;
    from.staged.push_back(std::move(message));
    return nullptr;
  }
  if (frame.eager) eager_taken_ += cost;
  Request& request = *from.receives.front();
  if (request.size_ != frame.total) {
    from.total = frame.total;
    from.discard = frame.total - frame.piece;
    from.receives.pop()->finish(size_mismatch(peer_, from.number, request.size_, frame.total));
    return nullptr;
  }
  in_.copy(frame, request.data_);
  request.moved_ = frame.piece;
  from.receiving = request.moved_ != request.size_;
  if (!from.receiving) from.receives.pop()->finish();
  return nullptr;
}

template <class Atomics>
const char* BasicLink<Atomics>::take_next(LaneState& from, const Frame& frame) {
  if (frame.eager || frame.piece == 0) return "a new message inside of another one";
  if (!from.receiving) {
    if (frame.total != from.total || frame.piece > from.discard) return "a piece too long";
    from.discard -= frame.piece;
    return nullptr;
  }
  Request& request = *from.receives.front();
  if (frame.total != request.size_ || frame.piece > request.size_ - request.moved_) {
    return "a piece too long";
  }
  in_.copy(frame, request.data_ + request.moved_);
  request.moved_ += frame.piece;
  from.receiving = request.moved_ != request.size_;
  if (!from.receiving) from.receives.pop()->finish();
  return nullptr;
}

template class BasicLink<StdAtomics>;

}  // namespace hccl::transport::shm
