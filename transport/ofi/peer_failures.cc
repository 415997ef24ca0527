// Unusual events: a peer leaves, a message has another size, an abort.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <new>
#include <utility>

#include "transport/ofi/ofi_mesh.h"

namespace hccl::transport::ofi {
namespace {

// Closing a mesh takes at most this long to notify the peers.
constexpr std::chrono::milliseconds kGoodbyeLimit{300};

}  // namespace

// ---- sizes that differ ----

void OfiMesh::inspect() {
  for (auto& [key, channel] : channels_) {
    Op* oldest = channel->receives.empty() ? nullptr : channel->receives.front();
    if (oldest != nullptr && oldest == channel->suspect && oldest->posted && oldest->verdict.ok() &&
        !channel->peeking) {
      peek(*channel);
    }
    channel->suspect = oldest;
  }
}

/// Asks libfabric whether the message for the oldest receive has come with another size. A message
/// of the same size would have matched the receive.
void OfiMesh::peek(Channel& channel) {
  const Op& op = *channel.receives.front();
  fi_msg_tagged message{};
  message.addr = FI_ADDR_UNSPEC;
  message.tag = op.tag & ~Tags::kSizeMask;
  message.ignore = Tags::kSizeMask;
  message.context = static_cast<Ticket*>(&channel);
  channel.peeking = fi_trecvmsg(endpoint_.endpoint.get(), &message, FI_PEEK) == 0;
}

void OfiMesh::peeked(Channel& channel, std::size_t size) {
  if (channel.receives.empty() || channel.receives.front() != channel.suspect) return;
  Op& op = *channel.receives.front();
  op.verdict = size_mismatch(op.peer, channel.lane, op.size, size);
  op.sent = size;
  cancel(op);
}

/// Receives the message of a cancelled receive into scratch memory, because the sender's request
/// completes only when a receive takes the message. The receive's own request fails only after
/// that, because without a pending request the caller need not call progress().
void OfiMesh::take_aside(Op& op) {
  op.scratch.reset(new (std::nothrow) std::byte[std::max<std::size_t>(op.sent, 1)]);
  if (op.scratch == nullptr) return finish(op, op.verdict);
  op.bytes = op.scratch.get();
  op.size = op.sent;
  op.tag = (op.tag & ~Tags::kSizeMask) | (tags_.tag(0, 0, 0, op.size) & Tags::kSizeMask);
  op.posted = false;
  post_receive(op);
}

// ---- peers that leave ----

void OfiMesh::listen_for_goodbye() {
  listens_for_goodbye_ =
      fi_trecv(endpoint_.endpoint.get(), &nothing_, 0, nullptr, FI_ADDR_UNSPEC,
               tags_.tag(0, Tags::kGoodbye, 0, 0), Tags::kSenderMask, &goodbye_) == 0;
}

void OfiMesh::heard_goodbye(std::uint64_t tag) {
  listens_for_goodbye_ = false;
  const int peer = Tags::sender(tag);
  if (peer < size() && peer != rank_) {
    fail_peer(
        peer,
        Status(Code::kRemote,
               "rank " + std::to_string(peer) + " has closed its side of the communicator", peer));
  }
  listen_for_goodbye();
}

void OfiMesh::say_goodbye() {
  std::deque<Request> goodbyes;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r].contacted || !peers_[r].dead.ok()) continue;
    Request& request = goodbyes.emplace_back();
    request.begin(static_cast<int>(r), Tags::kGoodbye, nullptr, 0);
    post_send(request);
  }
  const auto said = [&] {
    progress();
    return std::all_of(goodbyes.begin(), goodbyes.end(), [](const Request& r) { return r.done(); });
  };
  // A peer that no longer listens must not delay this rank.
  static_cast<void>(Waiter{.timeout = kGoodbyeLimit}.until(said, *sleeper_));
  if (!closed_) close_down(Status(Code::kUnavail, "the mesh was closed"));
}

void OfiMesh::fail_peer(int peer, const Status& why) {
  PeerState& dead = peers_[static_cast<std::size_t>(peer)];
  if (!dead.dead.ok()) return;
  dead.dead = why;
  // Operations that were not posted in libfabric fail here. The others come back as cancelled,
  // failed or done.
  std::erase(waiting_peers_, peer);
  for (Op* op : std::exchange(dead.waiting, {})) finish(*op, why);
  std::deque<Op*> kept;
  for (Op* op : std::exchange(waiting_receives_, {})) {
    if (op->peer == peer) {
      finish(*op, why);
    } else {
      kept.push_back(op);
    }
  }
  waiting_receives_ = std::move(kept);
  for (Op* op : busy_) {
    if (op->posted && op->peer == peer) cancel(*op);
  }
}

// ---- aborts ----

void OfiMesh::close_down(const Status& why) {
  closed_ = true;
  // Only closing ensures that no buffer is touched any more: a posted send cannot be cancelled in
  // every provider, and a cancelled receive may be half written.
  sleeper_->forget_endpoint();
  endpoint_.endpoint.reset();
  waiting_receives_.clear();
  waiting_peers_.clear();
  for (PeerState& peer : peers_) peer.waiting.clear();
  while (!busy_.empty()) finish(*busy_.back(), why);
  self_.fail(why);
}

void OfiMesh::abort(Status status) {
  if (aborted_.raise(std::move(status))) sleeper_->ring();
}

}  // namespace hccl::transport::ofi
