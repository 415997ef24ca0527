#include "hccl/exec/flow.h"

#include <algorithm>

#include "hccl/kernels/kernels.h"

namespace hccl::exec {

void Flow::begin(Direction direction, int peer, std::uint32_t lane, DataType type, ReduceOp op) {
  direction_ = direction;
  peer_ = peer;
  lane_ = lane;
  type_ = type;
  op_ = op;
  pieces_.clear();
  posted_ = finished_ = 0;
}

void Flow::add(Piece piece) {
  // kMessage is a multiple of every element size, so no element is cut.
  while (piece.bytes > 0) {
    const std::size_t take = std::min(piece.bytes, kMessage);
    pieces_.push_back({piece.data, piece.with, take});
    piece.data += take;
    if (piece.with != nullptr) piece.with += take;
    piece.bytes -= take;
  }
}

Flow::Slot& Flow::slot(std::size_t index) {
  index %= kWindow;
  while (slots_.size() <= index) slots_.push_back(std::make_unique<Slot>());
  return *slots_[index];
}

Status Flow::advance(transport::Mesh& mesh) {
  for (;;) {
    while (finished_ < posted_) {
      Slot& s = slot(finished_);
      if (!s.request.done()) break;
      if (!s.request.status().ok()) return s.request.status();
      const Piece& piece = pieces_[finished_];
      if (piece.with != nullptr) {
        const std::byte* inputs[] = {piece.with, s.staging.get()};
        kernels::fold(type_, op_, inputs, piece.data, piece.bytes / size_of(type_));
      }
      ++finished_;
    }
    if (posted_ == pieces_.size() || posted_ - finished_ == kWindow) return {};
    const Piece& piece = pieces_[posted_];
    Slot& s = slot(posted_);
    ++posted_;
    if (direction_ == Direction::kSend) {
      mesh.send(s.request, peer_, lane_, {piece.data, piece.bytes});
    } else if (piece.with == nullptr) {
      mesh.recv(s.request, peer_, lane_, {piece.data, piece.bytes});
    } else {
      if (!s.staging) s.staging = std::make_unique<std::byte[]>(kMessage);
      mesh.recv(s.request, peer_, lane_, {s.staging.get(), piece.bytes});
    }
  }
}

}  // namespace hccl::exec
