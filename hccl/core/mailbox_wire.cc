// Moves the messages of a mailbox: matching, eager and rendezvous messages, credit. mailbox.h
// describes the protocol.
#include <algorithm>
#include <cstring>
#include <utility>

#include "hccl/core/mailbox.h"

namespace hccl::core {
namespace {

constexpr std::uint32_t kHeaders = 0, kEagerBytes = 1, kAskedBytes = 2;  // lanes
constexpr std::uint64_t kEagerLimit = std::uint64_t{16} << 10;
// An eager message takes this many bytes of the sender's credit, besides its own size.
constexpr std::uint64_t kCost = 64;
// The most bytes of one transfer. Every transport can move more at once.
constexpr std::uint64_t kPiece = std::uint64_t{256} << 20;
constexpr std::chrono::seconds kPeerVerdictTime{2};
// The most rendezvous messages from one rank to another that may wait for their receives. This
// number of messages needs 40 MB.
constexpr std::size_t kAskCap = std::size_t{1} << 18;

}  // namespace

// ---- sends and receives that callers post ----

void Mailbox::post_send(const MessagePtr& message) {
  if (message->peer_ == rank_) return send_to_self(message);
  PeerRecord& peer = *peers_[static_cast<std::size_t>(message->peer_)];
  if (peer.gone) return fail_later(message, peer.why, peer.verdict);
  Header header{.tag = message->tag_, .bytes = message->bytes_};
  const std::uint64_t cost = message->bytes_ + kCost;
  if (message->bytes_ > kEagerLimit || cost > peer.credit) {
    if (peer.asking == kAskCap) return settle(message, too_many(message->peer_));
    ++peer.asking;
    header.kind = HeaderKind::kAsk;
    header.id = ++asked_;
    asking_.emplace(header.id, message);
    return put(message->peer_, header);
  }
  peer.credit -= cost;
  header.kind = HeaderKind::kEager;
  message->parts_ = 1;
  if (message->bytes_ <= kInline) {
    if (message->bytes_ != 0) std::memcpy(header.data.data(), message->data_, message->bytes_);
    return put(message->peer_, header, [this, message](const Status& status) HCCL_REQUIRES(mutex_) {
      part_ended(message, status);
    });
  }
  put(message->peer_, header);
  move_bytes(message->peer_, kEagerBytes, message);
}

void Mailbox::send_to_self(const MessagePtr& message) {
  auto arrival = std::make_shared<Arrival>(
      Arrival{.source = rank_, .tag = message->tag_, .bytes = message->bytes_, .sender = message});
  if (const MessagePtr receive = find_receive(rank_, message->tag_)) {
    return match(arrival, receive);
  }
  arrivals_[message->tag_].push_back(std::move(arrival));
}

void Mailbox::post_recv(const MessagePtr& message) {
  const auto at = arrivals_.find(message->tag_);
  if (at != arrivals_.end()) {
    auto& list = at->second;
    const auto first = std::find_if(list.begin(), list.end(), [&](const ArrivalPtr& each) {
      return message->peer_ == Message::kAnyRank || message->peer_ == each->source;
    });
    if (first != list.end()) {
      const ArrivalPtr arrival = std::move(*first);
      list.erase(first);
      if (list.empty()) arrivals_.erase(at);
      return match(arrival, message);
    }
  }
  if (message->peer_ != Message::kAnyRank && message->peer_ != rank_ && !peers_.empty()) {
    const PeerRecord& peer = *peers_[static_cast<std::size_t>(message->peer_)];
    if (peer.gone) return fail_later(message, peer.why, peer.verdict);
  }
  if (message->peer_ == Message::kAnyRank) {
    if (const PeerRecord* last = last_gone()) return fail_later(message, last->why, last->verdict);
  }
  receives_[message->tag_].push_back(message);
  expect(*message);
}

// Opens the links to the ranks from which the message may come. Without a link, this rank would not
// notice that such a rank ends its communicator.
void Mailbox::expect(const Message& receive) {
  if (mesh_ == nullptr) return;
  if (receive.peer_ != Message::kAnyRank) return mesh_->expect(receive.peer_);
  for (int peer = 0; peer < size_; ++peer) mesh_->expect(peer);
}

// If all other ranks are gone, returns the record of one of them; otherwise null.
const Mailbox::PeerRecord* Mailbox::last_gone() const {
  const PeerRecord* last = nullptr;
  for (const auto& each : peers_) {
    if (each.get() == peers_[static_cast<std::size_t>(rank_)].get()) continue;
    if (!each->gone) return nullptr;
    last = each.get();
  }
  return last;
}

MessagePtr Mailbox::find_receive(int source, std::int32_t tag) {
  const auto at = receives_.find(tag);
  if (at == receives_.end()) return nullptr;
  auto& list = at->second;
  const auto first = std::find_if(list.begin(), list.end(), [source](const MessagePtr& each) {
    return each->peer_ == Message::kAnyRank || each->peer_ == source;
  });
  if (first == list.end()) return nullptr;
  MessagePtr receive = *first;
  list.erase(first);
  if (list.empty()) receives_.erase(at);
  return receive;
}

Status Mailbox::mismatch(int source, int dest, std::int32_t tag, std::uint64_t sent,
                         std::uint64_t expected) const {
  return Status(Code::kPara, name_ + ": the message with tag " + std::to_string(tag) +
                                 " from rank " + std::to_string(source) + " to rank " +
                                 std::to_string(dest) + " has " + std::to_string(sent) +
                                 " bytes, its receive has " + std::to_string(expected));
}

Status Mailbox::too_many(int dest) const {
  return Status(Code::kUnavail, name_ + ": " + std::to_string(kAskCap) + " messages to rank " +
                                    std::to_string(dest) + " wait for their receives already");
}

// Delivers an arrived message to its receive, or answers the sender's request to send.
void Mailbox::match(const ArrivalPtr& arrival, const MessagePtr& receive) {
  receive->peer_ = arrival->source;
  const bool fits = arrival->bytes == receive->bytes_;
  const Status wrong =
      fits ? Status()
           : mismatch(arrival->source, rank_, arrival->tag, arrival->bytes, receive->bytes_);
  if (arrival->sender != nullptr) {
    if (fits && receive->bytes_ != 0) {
      std::memmove(receive->data_, arrival->sender->data_, receive->bytes_);
    }
    settle(arrival->sender, wrong);
    return settle(receive, wrong);
  }
  if (arrival->eager) {
    if (!arrival->why.ok()) {
      return fail_later(receive, arrival->why, Deadline::after(kPeerVerdictTime));
    }
    if (!arrival->here && fits) {
      arrival->taker = receive;
      return;
    }
    if (fits && receive->bytes_ != 0) {
      std::memcpy(receive->data_, arrival->buffer.get(), receive->bytes_);
    }
    arrival->refused = !fits;
    if (arrival->here) give_back(arrival->source, arrival->bytes + kCost);
    return settle(receive, wrong);
  }
  --peers_[static_cast<std::size_t>(arrival->source)]->asks;
  put(arrival->source, {.kind = fits ? HeaderKind::kReady : HeaderKind::kRefuse,
                        .bytes = receive->bytes_,
                        .id = arrival->id});
  if (!fits) return settle(receive, wrong);
  receive->parts_ = 1;
  move_bytes(arrival->source, kAskedBytes, receive);
}

// ---- transfers over the mesh ----

void Mailbox::put(int peer, const Header& header, std::function<void(Status)> then) {
  Transfer& transfer = active_.emplace_back();
  transfer.header = header;
  transfer.then = std::move(then);
  mesh_->send(transfer.request, peer, kHeaders, std::as_bytes(std::span(&transfer.header, 1)));
}

// `parts_` must be 1 before the call, because the call itself counts as a part until it returns.
void Mailbox::move_bytes(int peer, std::uint32_t lane, const MessagePtr& message) {
  for (std::uint64_t at = 0; at < message->bytes_; at += kPiece) {
    const std::span piece(message->data_ + at, std::min(kPiece, message->bytes_ - at));
    ++message->parts_;
    Transfer& transfer = active_.emplace_back();
    transfer.then = [this, message](const Status& status)
                        HCCL_REQUIRES(mutex_) { part_ended(message, status); };
    if (message->sending_) {
      mesh_->send(transfer.request, peer, lane, piece);
    } else {
      mesh_->recv(transfer.request, peer, lane, piece);
    }
  }
  part_ended(message, {});
}

void Mailbox::part_ended(const MessagePtr& message, const Status& status) {
  if (message->status_.ok()) message->status_ = status;
  if (--message->parts_ != 0) return;
  if (message->status_.ok()) return settle(message, {});
  fail_later(message, message->status_, Deadline::after(kPeerVerdictTime));
}

// Handles the transfers that the mesh has finished. Returns whether there were any.
bool Mailbox::advance() {
  bool moved = false;
  for (auto each = active_.begin(); each != active_.end();) {
    if (!each->request.done()) {
      ++each;
      continue;
    }
    moved = true;
    if (each->then) each->then(each->request.status());
    each = active_.erase(each);
  }
  for (int peer = 0; peer < size_; ++peer) {
    PeerRecord& each = *peers_[static_cast<std::size_t>(peer)];
    while (peer != rank_ && !each.gone && !ended_.raised() && each.incoming.done()) {
      moved = true;
      if (each.incoming.status().ok()) {
        take(peer);
      } else {
        lost(peer, each.incoming.status(), Deadline::after(kPeerVerdictTime));
      }
    }
  }
  return moved;
}

void Mailbox::listen(int peer) {
  PeerRecord& each = *peers_[static_cast<std::size_t>(peer)];
  mesh_->recv(each.incoming, peer, kHeaders, std::as_writable_bytes(std::span(&each.header, 1)));
}

void Mailbox::take(int peer) {
  const Header header = peers_[static_cast<std::size_t>(peer)]->header;
  // Posts the receive of the peer's next header first. That header follows the bytes of this
  // message, so the receive is ready when the header arrives.
  listen(peer);
  switch (header.kind) {
    case HeaderKind::kEager:
      return take_eager(peer, header);
    case HeaderKind::kAsk:
      return take_ask(peer, header);
    case HeaderKind::kReady:
    case HeaderKind::kRefuse:
    case HeaderKind::kCredit:
      return take_answer(peer, header);
  }
  corrupt(peer, "a message of an unknown kind");
}

void Mailbox::take_eager(int peer, const Header& header) {
  PeerRecord& from = *peers_[static_cast<std::size_t>(peer)];
  if (header.bytes > kEagerLimit || header.bytes + kCost > window_ - from.owed) {
    return corrupt(peer, "more eager bytes than there is room for");
  }
  from.owed += header.bytes + kCost;
  auto arrival = std::make_shared<Arrival>(
      Arrival{.source = peer, .tag = header.tag, .bytes = header.bytes, .eager = true});
  const MessagePtr receive = find_receive(peer, header.tag);
  if (header.bytes > kInline) {
    take_payload(arrival, receive);
  } else {
    arrival->here = true;
    arrival->buffer = std::make_unique_for_overwrite<std::byte[]>(kInline);
    std::memcpy(arrival->buffer.get(), header.data.data(), kInline);
    if (receive != nullptr) match(arrival, receive);
  }
  if (receive == nullptr) arrivals_[header.tag].push_back(arrival);
}

// Receives the bytes of an eager message: into the buffer of `receive` if there is one of the right
// size, otherwise into a new buffer.
void Mailbox::take_payload(const ArrivalPtr& arrival, const MessagePtr& receive) {
  const bool direct = receive != nullptr && receive->bytes_ == arrival->bytes;
  if (direct) {
    receive->peer_ = arrival->source;
  } else {
    arrival->buffer = std::make_unique_for_overwrite<std::byte[]>(arrival->bytes);
    if (receive != nullptr) match(arrival, receive);
  }
  Transfer& transfer = active_.emplace_back();
  transfer.then = [this, arrival, direct, receive](const Status& status) HCCL_REQUIRES(mutex_) {
    arrival->here = true;
    const MessagePtr taker = direct ? receive : arrival->taker;
    if (!status.ok()) {
      arrival->why = status;
      if (taker != nullptr) fail_later(taker, status, Deadline::after(kPeerVerdictTime));
      return;
    }
    if (direct || arrival->refused) give_back(arrival->source, arrival->bytes + kCost);
    if (direct) return settle(receive, {});
    if (taker != nullptr) match(arrival, taker);
  };
  std::byte* const to = direct ? receive->data_ : arrival->buffer.get();
  mesh_->recv(transfer.request, arrival->source, kEagerBytes, {to, arrival->bytes});
}

void Mailbox::take_ask(int peer, const Header& header) {
  auto arrival = std::make_shared<Arrival>(
      Arrival{.source = peer, .tag = header.tag, .bytes = header.bytes, .id = header.id});
  PeerRecord& from = *peers_[static_cast<std::size_t>(peer)];
  if (from.asks == kAskCap) return corrupt(peer, "more messages than may wait for their receives");
  ++from.asks;
  if (const MessagePtr receive = find_receive(peer, header.tag)) return match(arrival, receive);
  arrivals_[header.tag].push_back(std::move(arrival));
}

void Mailbox::take_answer(int peer, const Header& header) {
  PeerRecord& from = *peers_[static_cast<std::size_t>(peer)];
  if (header.kind == HeaderKind::kCredit) {
    if (header.bytes > window_ - from.credit)
      return corrupt(peer, "more credit than this rank has used");
    from.credit += header.bytes;
    return;
  }
  const auto at = asking_.find(header.id);
  if (at == asking_.end() || at->second->peer_ != peer) {
    return corrupt(peer, "an answer to no message");
  }
  const MessagePtr message = at->second;
  asking_.erase(at);
  --from.asking;
  if (header.kind == HeaderKind::kRefuse) {
    return settle(message, mismatch(rank_, peer, message->tag_, message->bytes_, header.bytes));
  }
  message->parts_ = 1;
  move_bytes(peer, kAskedBytes, message);
}

void Mailbox::give_back(int peer, std::uint64_t bytes) {
  PeerRecord& from = *peers_[static_cast<std::size_t>(peer)];
  from.freed += bytes;
  if (from.gone || from.freed < window_ / 4) return;
  from.owed -= from.freed;
  put(peer, {.kind = HeaderKind::kCredit, .bytes = std::exchange(from.freed, 0)});
}

void Mailbox::lost(int peer, const Status& why, Deadline verdict) {
  if (why.culprit() == rank_) {  // this rank lacks descriptors or memory, for this peer and others
    if (ended_.raise(Status(why.code(), name_ + ": " + why.message(), rank_))) given_up_ = true;
    return;
  }
  PeerRecord& from = *peers_[static_cast<std::size_t>(peer)];
  from.gone = true;
  from.why = Status(why.code(), name_ + ": " + why.message(), why.culprit());
  from.verdict = verdict;
  const bool alone = last_gone() != nullptr;
  for (auto& [tag, list] : receives_) {
    list.remove_if([&](const MessagePtr& each) HCCL_REQUIRES(mutex_) {
      const bool concerned = each->peer_ == peer || (alone && each->peer_ == Message::kAnyRank);
      if (concerned) fail_later(each, from.why, from.verdict);
      return concerned;
    });
  }
  std::erase_if(receives_, [](const auto& each) { return each.second.empty(); });
  std::erase_if(asking_, [&](const auto& each) HCCL_REQUIRES(mutex_) {
    if (each.second->peer_ != peer) return false;
    fail_later(each.second, from.why, from.verdict);
    return true;
  });
}

void Mailbox::corrupt(int peer, const char* what) {
  ended_.raise(
      Status(Code::kInternal, name_ + ": rank " + std::to_string(peer) + " sent " + what, peer));
}

}  // namespace hccl::core
