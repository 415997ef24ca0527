#include "hccl/exec/lane.h"

namespace hccl::exec {

Lane::Lane(transport::Mesh& mesh) : mesh_(mesh) {}

void Lane::begin(std::uint32_t number, const Call& call, const Envelope& mine,
                 const kernels::Folding& fold, std::size_t message, std::byte* staging) {
  number_ = number;
  call_ = call;
  fold_ = fold;
  mine_ = mine;
  message_ = message;
  staging_ = staging;
  slices_.clear();
  slice_ = step_ = 0;
  started_ = false;
  flows_used_ = hellos_used_ = hellos_pending_ = 0;
}

void Lane::add(const schedule::Schedule& schedule, const ChunkLayout& layout, std::byte* scratch) {
  slices_.push_back({&schedule, layout, scratch});
}

Lane::Hello& Lane::hello(int peer) {
  for (std::size_t i = 0; i < hellos_used_; ++i) {
    if (hellos_[i]->peer == peer) return *hellos_[i];
  }
  if (hellos_used_ == hellos_.size()) hellos_.push_back(std::make_unique<Hello>());
  Hello& fresh = *hellos_[hellos_used_++];
  fresh.peer = peer;
  fresh.sending = fresh.receiving = false;
  return fresh;
}

// Returns the only flow of a step for this direction and peer. Messages match in the order in which
// they start, and the messages of two flows would start in an arbitrary order.
Flow& Lane::flow(Flow::Direction direction, int peer) {
  for (std::size_t i = 0; i < flows_used_; ++i) {
    if (flows_[i]->peer() == peer && flows_[i]->direction() == direction) return *flows_[i];
  }
  if (flows_used_ == flows_.size()) flows_.push_back(std::make_unique<Flow>());
  Flow& fresh = *flows_[flows_used_++];
  fresh.begin(direction, peer, number_, fold_.partial(), message_);
  return fresh;
}

std::byte* Lane::address(const schedule::Slice& where, int chunk) {
  const Slice& slice = slices_[slice_];
  switch (where.buffer) {
    case schedule::Buffer::kIn:
      return const_cast<std::byte*>(slice.layout.in(chunk));  // only read
    case schedule::Buffer::kOut:
      return slice.layout.out(chunk);
    case schedule::Buffer::kScratch:
      break;
  }
  return slice.scratch +
         static_cast<std::size_t>(where.slot + chunk - where.chunk) * slice.layout.longest();
}

void Lane::start(const schedule::Send& send) {
  Hello& opening = hello(send.peer);
  if (!opening.sending) {
    opening.sending = true;
    opening.sent = mine_;
    ++hellos_pending_;
    mesh_.send(opening.send, send.peer, number_, std::as_bytes(std::span(&opening.sent, 1)));
  }
  Flow& out = flow(Flow::Direction::kSend, send.peer);
  const ChunkLayout& layout = slices_[slice_].layout;
  const int run = layout.run(send.from.count);
  for (int c = 0; c < send.from.count; c += run) {
    const int chunk = send.from.chunk + c;
    out.add({address(send.from, chunk), nullptr, layout.bytes(chunk, run)});
  }
}

void Lane::start(const schedule::Recv& recv) {
  Hello& opening = hello(recv.peer);
  if (!opening.receiving) {
    opening.receiving = true;
    ++hellos_pending_;
    mesh_.recv(opening.recv, recv.peer, number_,
               std::as_writable_bytes(std::span(&opening.received, 1)));
  }
  Flow& into = flow(Flow::Direction::kRecv, recv.peer);
  if (recv.reduce_with && !into.has_staging()) {
    into.set_staging(staging_ + staging_used_);
    staging_used_ += Flow::kWindow * message_;
  }
  const ChunkLayout& layout = slices_[slice_].layout;
  const int run = layout.run(recv.into.count);
  for (int c = 0; c < recv.into.count; c += run) {
    const int chunk = recv.into.chunk + c;
    const std::byte* with =
        recv.reduce_with ? address(*recv.reduce_with, recv.reduce_with->chunk + c) : nullptr;
    into.add({address(recv.into, chunk), with, layout.bytes(chunk, run)});
  }
}

void Lane::fold(const schedule::Fold& fold) {
  const ChunkLayout& layout = slices_[slice_].layout;
  inputs_.resize(fold.inputs.size());
  const int run = layout.run(fold.into.count);
  for (int c = 0; c < fold.into.count; c += run) {
    const int chunk = fold.into.chunk + c;
    const std::size_t bytes = layout.bytes(chunk, run);
    if (bytes == 0) continue;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i] = address(fold.inputs[i], fold.inputs[i].chunk + c);
    }
    std::byte* into = address(fold.into, chunk);
    fold_(inputs_, into, bytes / layout.element());
  }
}

void Lane::start_step() {
  const schedule::Step& step = slices_[slice_].schedule->steps[step_];
  flows_used_ = staging_used_ = 0;
  // Receives start first, so that early messages find their receive.
  for (const auto& recv : step.recvs) start(recv);
  for (const auto& send : step.sends) start(send);
  started_ = true;
}

Status Lane::check_hellos() {
  hellos_pending_ = 0;
  Status broken;
  const auto look = [&](const transport::Request& request) {
    if (!request.done()) {
      ++hellos_pending_;
    } else if (broken.ok()) {
      broken = request.status();
    }
  };
  for (std::size_t i = 0; i < hellos_used_; ++i) {
    const Hello& opening = *hellos_[i];
    // A peer whose call differs may also break a connection. The different call is then the cause,
    // so it is reported first.
    if (opening.receiving && opening.recv.done() && opening.recv.status().ok() &&
        !(opening.received == mine_)) {
      return mismatch(mesh_.rank(), mine_, opening.peer, opening.received);
    }
    if (opening.receiving) look(opening.recv);
    if (opening.sending) look(opening.send);
  }
  return broken;
}

void Lane::late(std::set<int>& peers) const {
  for (std::size_t i = 0; i < hellos_used_; ++i) {
    if (hellos_[i]->receiving && !hellos_[i]->recv.done()) peers.insert(hellos_[i]->peer);
  }
}

Status Lane::advance() {
  while (slice_ < slices_.size()) {
    const auto& steps = slices_[slice_].schedule->steps;
    if (step_ == steps.size()) {
      ++slice_;
      step_ = 0;
      continue;
    }
    if (!started_) start_step();
    // Envelopes come before data: a step is done only when the calls have been compared.
    if (hellos_pending_ > 0) HCCL_RETURN_IF_ERROR(check_hellos());
    bool done = true;
    for (std::size_t i = 0; i < flows_used_; ++i) {
      Status status = flows_[i]->advance(mesh_);
      if (!status.ok()) {
        // A peer that made another call sends other sizes. The peer's envelope explains the failure
        // better, so check the envelopes first.
        HCCL_RETURN_IF_ERROR(check_hellos());
        return status;
      }
      done = done && flows_[i]->done();
    }
    if (!done || hellos_pending_ > 0) return {};
    for (const auto& each : steps[step_].folds) fold(each);
    ++step_;
    started_ = false;
  }
  if (hellos_pending_ > 0) return check_hellos();
  return {};
}

}  // namespace hccl::exec
