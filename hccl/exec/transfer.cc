#include "hccl/exec/transfer.h"

#include <cstring>

namespace hccl::exec {
namespace {

// The sender's envelope and the data use kDataLane, the receiver's envelope uses kAnswerLane. So
// two ranks can send to each other at the same time without mixing envelopes and data.
constexpr std::uint32_t kDataLane = transport::Mesh::kLanes - 2;
constexpr std::uint32_t kAnswerLane = transport::Mesh::kLanes - 3;

// Returns the sends (if `sending`) or the receives of a rank to itself, in order.
std::vector<const Transfer*> own(std::span<const Transfer> transfers, int self, bool sending) {
  std::vector<const Transfer*> out;
  for (const Transfer& each : transfers) {
    if (each.peer == self && each.sending == sending) out.push_back(&each);
  }
  return out;
}

}  // namespace

Envelope envelope(const Transfer& transfer) {
  Envelope out;
  out.sequence = transfer.sequence;
  out.count = transfer.count;
  out.type = static_cast<std::uint8_t>(transfer.type);
  out.plan = transfer.tag;
  out.op = transfer.sending ? Envelope::kSend : Envelope::kRecv;
  return out;
}

Status pair_self(std::span<const Transfer> transfers, int self) {
  const auto sends = own(transfers, self, true);
  const auto recvs = own(transfers, self, false);
  const auto plural = [](std::size_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  if (sends.size() != recvs.size()) {
    return Status(Code::kPara, plural(sends.size(), "send") + " of rank " + std::to_string(self) +
                                   " to itself, but " + plural(recvs.size(), "receive"));
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const Transfer& from = *sends[i];
    const Transfer& to = *recvs[i];
    if (from.count == to.count && from.type == to.type && from.tag == to.tag) continue;
    if (from.tag != to.tag) {
      return Status(Code::kPara, "send " + std::to_string(i) + " of rank " + std::to_string(self) +
                                     " to itself has srTag " + std::to_string(from.tag) +
                                     ", but its receive has srTag " + std::to_string(to.tag));
    }
    return Status(Code::kPara, "send " + std::to_string(i) + " of rank " + std::to_string(self) +
                                   " to itself has " + std::to_string(from.count) + " " +
                                   std::string(to_string(from.type)) + ", but its receive has " +
                                   std::to_string(to.count) + " " +
                                   std::string(to_string(to.type)));
  }
  return {};
}

void Batch::copy_to_self(std::span<const Transfer> transfers) const {
  const auto sends = own(transfers, mesh_.rank(), true);
  const auto recvs = own(transfers, mesh_.rank(), false);
  for (std::size_t i = 0; i < sends.size() && i < recvs.size(); ++i) {
    const std::size_t bytes = sends[i]->count * size_of(sends[i]->type);
    // The buffers may be the same.
    if (bytes != 0) std::memmove(recvs[i]->data, sends[i]->data, bytes);
  }
}

Batch::Chain& Batch::chain(int peer, bool sending) {
  for (std::size_t i = 0; i < used_; ++i) {
    if (chains_[i]->peer == peer && chains_[i]->sending == sending) return *chains_[i];
  }
  if (used_ == chains_.size()) chains_.push_back(std::make_unique<Chain>());
  Chain& fresh = *chains_[used_++];
  fresh.peer = peer;
  fresh.sending = sending;
  fresh.transfers.clear();
  fresh.at = 0;
  fresh.started = false;
  return fresh;
}

void Batch::begin(std::span<const Transfer> transfers) {
  used_ = 0;
  copy_to_self(transfers);
  for (const Transfer& each : transfers) {
    if (each.peer != mesh_.rank()) chain(each.peer, each.sending).transfers.push_back(&each);
  }
  running_ = used_;
}

// Starts to exchange the envelopes and the data, all at the same time.
void Batch::start(Chain& c) {
  const Transfer& transfer = *c.transfers[c.at];
  c.started = true;
  c.mine = envelope(transfer);
  c.flow.begin(c.sending ? Flow::Direction::kSend : Flow::Direction::kRecv, c.peer, kDataLane);
  c.flow.add(
      {static_cast<std::byte*>(transfer.data), nullptr, transfer.count * size_of(transfer.type)});
  const std::uint32_t out_lane = c.sending ? kDataLane : kAnswerLane;
  const std::uint32_t in_lane = c.sending ? kAnswerLane : kDataLane;
  mesh_.recv(c.hello_in, c.peer, in_lane, std::as_writable_bytes(std::span(&c.theirs, 1)));
  mesh_.send(c.hello_out, c.peer, out_lane, std::as_bytes(std::span(&c.mine, 1)));
}

Status Batch::check_hello(const Chain& c) const {
  if (!c.hello_in.done()) return {};
  HCCL_RETURN_IF_ERROR(c.hello_in.status());
  Envelope expected = c.mine;
  expected.op = c.sending ? Envelope::kRecv : Envelope::kSend;
  return c.theirs == expected ? Status() : mismatch(mesh_.rank(), c.mine, c.peer, c.theirs);
}

Status Batch::advance(Chain& c) {
  while (c.at < c.transfers.size()) {
    if (!c.started) start(c);
    HCCL_RETURN_IF_ERROR(check_hello(c));
    if (Status moved = c.flow.advance(mesh_); !moved.ok()) {
      // A peer that made another call sends other sizes. The peer's envelope explains the failure
      // better.
      HCCL_RETURN_IF_ERROR(check_hello(c));
      return moved;
    }
    if (c.hello_out.done()) HCCL_RETURN_IF_ERROR(c.hello_out.status());
    if (!c.hello_in.done() || !c.hello_out.done() || !c.flow.done()) return {};
    c.started = false;
    ++c.at;
  }
  --running_;
  return {};
}

Status Batch::advance() {
  for (std::size_t i = 0; i < used_; ++i) {
    Chain& each = *chains_[i];
    if (each.at < each.transfers.size()) HCCL_RETURN_IF_ERROR(advance(each));
  }
  return {};
}

void Batch::late(std::set<int>& peers) const {
  for (const Transfer* each : late_transfers()) peers.insert(each->peer);
}

std::vector<const Transfer*> Batch::late_transfers() const {
  std::vector<const Transfer*> out;
  for (std::size_t i = 0; i < used_; ++i) {
    const Chain& each = *chains_[i];
    if (each.started && !each.hello_in.done()) out.push_back(each.transfers[each.at]);
  }
  return out;
}

}  // namespace hccl::exec
