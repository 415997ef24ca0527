// The life of an operation: from send() or recv() through libfabric to its end.
#include "transport/ofi/ofi_mesh.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hccl::transport::ofi {

// ---- posting ----

OfiMesh::Channel& OfiMesh::channel(int peer, std::uint32_t lane) {
  auto& channel = channels_[static_cast<std::uint64_t>(peer) << Tags::kLaneBits | lane];
  if (channel == nullptr) {
    channel = std::make_unique<Channel>();
    channel->kind = Ticket::OpKind::kPeek;
    channel->peer = peer;
    channel->lane = lane;
  }
  return *channel;
}

OfiMesh::Op& OfiMesh::take_op(Ticket::OpKind kind, Request& request, Channel& channel) {
  if (free_.empty()) {
    ops_.push_back(std::make_unique<Op>());
    free_.push_back(ops_.back().get());
  }
  Op* op = free_.back();
  free_.pop_back();
  op->kind = kind;
  op->request = &request;
  op->peer = channel.peer;
  op->channel = &channel;
  op->posted = false;
  op->verdict = Status();
  op->bytes = request.data_;
  op->size = request.size_;
  op->place = busy_.size();
  busy_.push_back(op);
  return *op;
}

void OfiMesh::finish(Op& op, Status status) {
  busy_[op.place] = busy_.back();
  busy_[op.place]->place = op.place;
  busy_.pop_back();
  op.region.reset();
  op.scratch.reset();
  if (op.kind == Ticket::OpKind::kReceive) {
    --receives_;
    std::deque<Op*>& receives = op.channel->receives;
    receives.erase(std::find(receives.begin(), receives.end(), &op));
  }
  free_.push_back(&op);
  if (status.ok()) op.request->moved_ = op.request->size_;
  op.request->finish(std::move(status));
}

void OfiMesh::send(Request& request, int peer, std::uint32_t lane,
                   std::span<const std::byte> bytes) {
  if (refused(request, size(), peer, lane, aborted_)) return;
  if (peer == rank_) return self_.send(request, peer, lane, bytes);
  request.begin(peer, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
  post_send(request);
}

void OfiMesh::post_send(Request& request) {
  const int peer = request.peer_;
  PeerState& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.dead.ok()) return request.finish(to.dead);
  to.contacted = true;
  Channel& lane = channel(peer, request.lane_);
  Op& op = take_op(Ticket::OpKind::kSend, request, lane);
  op.tag = tags_.tag(rank_, lane.lane, lane.sent++, op.size);
  if (to.waiting.empty() && try_post(op)) return;
  if (to.waiting.empty()) waiting_peers_.push_back(peer);
  to.waiting.push_back(&op);
  note_waiting();
}

void OfiMesh::recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) {
  if (refused(request, size(), peer, lane, aborted_)) return;
  if (peer == rank_) return self_.recv(request, peer, lane, bytes);
  request.begin(peer, lane, bytes.data(), bytes.size());
  peers_[static_cast<std::size_t>(peer)].contacted = true;
  Channel& from = channel(peer, lane);
  Op& op = take_op(Ticket::OpKind::kReceive, request, from);
  op.tag = tags_.tag(peer, lane, from.awaited++, op.size);
  from.receives.push_back(&op);
  ++receives_;
  post_receive(op);
}

void OfiMesh::post_receive(Op& op) {
  if (waiting_receives_.empty() && try_post(op)) return;
  waiting_receives_.push_back(&op);
  note_waiting();
}

Result<void*> OfiMesh::descriptor(Op& op) {
  if (!endpoint_.registers_memory() || op.size == 0) return nullptr;
  if (op.region == nullptr) {
    HCCL_ASSIGN_OR_RETURN(op.region, endpoint_.register_memory({op.bytes, op.size}));
  }
  return fi_mr_desc(op.region.get());
}

bool OfiMesh::try_post(Op& op) {
  auto described = descriptor(op);
  if (!described.ok()) {
    finish(op, described.status());
    return true;
  }
  const bool sends = op.kind == Ticket::OpKind::kSend;
  const PeerState& peer = peers_[static_cast<std::size_t>(op.peer)];
  std::byte* bytes = op.size == 0 ? &nothing_ : op.bytes;
  void* context = static_cast<Ticket*>(&op);
  fid_ep* endpoint = endpoint_.endpoint.get();
  const ssize_t result =
      sends ? fi_tsend(endpoint, bytes, op.size, *described, peer.address, op.tag, context)
            : fi_trecv(endpoint, bytes, op.size, *described, FI_ADDR_UNSPEC, op.tag, 0, context);
  if (result == -FI_EAGAIN) return false;
  if (result == 0) {
    op.posted = true;
    // The peer has left, but its message may have arrived before. So the receive is posted and then
    // cancelled: libfabric cancels only receives without a message.
    if (!sends && !peer.dead.ok()) cancel(op);
    return true;
  }
  const int culprit = op.peer;
  const Status why = fabric_error(
      Code::kRemote, "rank " + std::to_string(culprit) + " cannot be reached", result, culprit);
  finish(op, why);
  if (sends) fail_peer(culprit, why);
  return true;
}

void OfiMesh::cancel(Op& op) { fi_cancel(&endpoint_.endpoint->fid, static_cast<Ticket*>(&op)); }

bool OfiMesh::post_waiting() {
  bool moved = false;
  while (!waiting_receives_.empty()) {
    Op* op = waiting_receives_.front();
    if (!try_post(*op)) break;
    waiting_receives_.pop_front();
    moved = true;
  }
  // Iterates over a copy, because a failure here changes the list.
  const std::vector<int> peers = waiting_peers_;
  for (const int peer : peers) {
    std::deque<Op*>& waiting = peers_[static_cast<std::size_t>(peer)].waiting;
    while (!waiting.empty()) {
      Op* op = waiting.front();
      waiting.pop_front();  // before the post, which may fail and remove the peer
      if (!try_post(*op)) {
        waiting.push_front(op);
        break;
      }
      moved = true;
    }
    if (waiting.empty()) std::erase(waiting_peers_, peer);
  }
  return moved;
}

void OfiMesh::note_waiting() {
  sleeper_->set_waiting(!waiting_receives_.empty() || !waiting_peers_.empty());
}

// ---- progress ----

bool OfiMesh::progress() {
  if (closed_) return false;
  if (aborted_.raised()) {
    close_down(aborted_.reason());
    return true;
  }
  if (!listens_for_goodbye_) listen_for_goodbye();
  bool moved = read_completions();
  if (closed_) return true;
  if (!waiting_receives_.empty() || !waiting_peers_.empty()) {
    moved |= post_waiting();
    note_waiting();
  }
  if (moved) {
    sleeper_->moved();
  } else if (receives_ != 0 && next_inspection_.expired()) {
    next_inspection_ = Deadline::after(kInspection);
    inspect();
  }
  return moved;
}

bool OfiMesh::read_completions() {
  std::array<fi_cq_tagged_entry, 16> entries;
  bool moved = false;
  for (;;) {
    const ssize_t count = fi_cq_read(endpoint_.completions.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN || count == 0) return moved;
    if (count > 0) {
      moved = true;
      for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)]);
      if (static_cast<std::size_t>(count) < entries.size()) return moved;
      continue;
    }
    fi_cq_err_entry error{};
    if (count == -FI_EAVAIL && fi_cq_readerr(endpoint_.completions.get(), &error, 0) == 1) {
      moved |= error.err != FI_ENOMSG;  // a peek without a result is no progress
      complete_with_error(error);
      continue;
    }
    aborted_.raise(fabric_error(Code::kNetwork, "libfabric's completion queue is unusable", count));
    close_down(aborted_.reason());
    return true;
  }
}

void OfiMesh::complete(const fi_cq_tagged_entry& entry) {
  if (entry.op_context == nullptr) return;
  auto* ticket = static_cast<Ticket*>(entry.op_context);
  if (ticket->kind == Ticket::OpKind::kGoodbye) return heard_goodbye(entry.tag);
  if (ticket->kind == Ticket::OpKind::kPeek) {
    auto& channel = static_cast<Channel&>(*ticket);
    channel.peeking = false;
    return peeked(channel, entry.len);
  }
  Op& op = static_cast<Op&>(*ticket);
  Status status = op.verdict;
  if (status.ok() && op.kind == Ticket::OpKind::kReceive && entry.len != op.size) {
    status = size_mismatch(op.peer, op.channel->lane, op.size, entry.len);
  }
  finish(op, std::move(status));
}

void OfiMesh::complete_with_error(const fi_cq_err_entry& entry) {
  if (entry.op_context == nullptr) return;
  auto* ticket = static_cast<Ticket*>(entry.op_context);
  if (ticket->kind == Ticket::OpKind::kGoodbye) {
    listens_for_goodbye_ = false;
    return;
  }
  if (ticket->kind == Ticket::OpKind::kPeek) {
    static_cast<Channel&>(*ticket).peeking = false;
    return;
  }
  Op& op = static_cast<Op&>(*ticket);
  const int peer = op.peer;
  const Status& dead = peers_[static_cast<std::size_t>(peer)].dead;
  if (!op.verdict.ok()) {
    if (entry.err == FI_ECANCELED && op.scratch == nullptr) return take_aside(op);
    return finish(op, op.verdict);
  }
  if (entry.err == FI_ETRUNC && op.kind == Ticket::OpKind::kReceive) {
    return finish(op, size_mismatch(peer, op.channel->lane, op.size, op.size + entry.olen));
  }
  if (!dead.ok()) return finish(op, dead);
  const Status why =
      fabric_error(Code::kRemote, "rank " + std::to_string(peer) + " is gone or cannot be reached",
                   entry.err, peer);
  finish(op, why);
  fail_peer(peer, why);
}

}  // namespace hccl::transport::ofi
