#include "hccl/exec/flow.h"

#include <algorithm>

namespace hccl::exec {

std::size_t Flow::message_within(std::size_t bytes, std::size_t receives) {
  // Sizes are powers of two, so that no message splits an element.
  constexpr std::size_t kShortest = 4096;
  std::size_t message = kMessage;
  while (message > kShortest && message * kWindow * receives > bytes) message /= 2;
  return message;
}

void Flow::begin(Direction direction, int peer, std::uint32_t lane, const kernels::Folding& fold,
                 std::size_t message) {
  direction_ = direction;
  peer_ = peer;
  lane_ = lane;
  fold_ = fold;
  message_ = message;
  staging_ = nullptr;
  pieces_.clear();
  posted_ = finished_ = 0;
}

void Flow::add(Piece piece) {
  while (piece.bytes > 0) {
    const std::size_t take = std::min(piece.bytes, message_);
    pieces_.push_back({piece.data, piece.with, take});
    piece.data += take;
    if (piece.with != nullptr) piece.with += take;
    piece.bytes -= take;
  }
}

transport::Request& Flow::request(std::size_t index) {
  index %= kWindow;
  while (requests_.size() <= index) requests_.push_back(std::make_unique<transport::Request>());
  return *requests_[index];
}

Status Flow::advance(transport::Mesh& mesh) {
  for (;;) {
    while (finished_ < posted_) {
      const transport::Request& done = request(finished_);
      if (!done.done()) break;
      if (!done.status().ok()) return done.status();
      const Piece& piece = pieces_[finished_];
      if (piece.with != nullptr) {
        const std::byte* inputs[] = {piece.with, staging(finished_)};
        fold_(inputs, piece.data, piece.bytes / size_of(fold_.type));
      }
      ++finished_;
    }
    if (posted_ == pieces_.size() || posted_ - finished_ == kWindow) return {};
    const Piece& piece = pieces_[posted_];
    const std::size_t at = posted_++;
    transport::Request& next = request(at);
    if (direction_ == Direction::kSend) {
      mesh.send(next, peer_, lane_, {piece.data, piece.bytes});
    } else if (piece.with == nullptr) {
      mesh.recv(next, peer_, lane_, {piece.data, piece.bytes});
    } else {
      mesh.recv(next, peer_, lane_, {staging(at), piece.bytes});
    }
  }
}

}  // namespace hccl::exec
