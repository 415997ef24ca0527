// The data that goes one way between two ranks in a step: cut into messages, several under way at
// once; a reducing receive folds each message as it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/kernels/folding.h"
#include "transport/transport.h"

namespace hccl::exec {

/// A run of bytes of a transfer. For a reducing receive `with` is the other operand.
struct Piece {
  std::byte* data = nullptr;  ///< a send only reads it
  const std::byte* with = nullptr;
  std::size_t bytes = 0;
};

class Flow {
 public:
  enum class Direction { kSend, kRecv };

  /// Bytes of one message at most, unless begin() gets another limit.
  static constexpr std::size_t kMessage = std::size_t{512} << 10;
  /// Messages of one transfer under way at once.
  static constexpr std::size_t kWindow = 4;

  /// Bytes of a message, so that this many concurrent reducing receives fit into `bytes` of staging
  /// memory (but not below a useful minimum); kMessage if there are none.
  static std::size_t message_within(std::size_t bytes, std::size_t receives);

  /// Starts over for a new transfer; keeps its memory. Add pieces, then advance() until done().
  /// `message` is the most bytes of one message, the same on both sides, and the unit in which
  /// receives are folded, by `fold`.
  void begin(Direction direction, int peer, std::uint32_t lane, const kernels::Folding& fold = {},
             std::size_t message = kMessage);
  Direction direction() const { return direction_; }
  int peer() const { return peer_; }
  /// Memory for kWindow messages that wait to be folded. To be set before the first such piece.
  void set_staging(std::byte* staging) { staging_ = staging; }
  bool has_staging() const { return staging_ != nullptr; }
  void add(Piece piece);
  /// Starts and completes messages as far as possible. A failure is final; requests may still be
  /// under way then.
  Status advance(transport::Mesh& mesh);
  /// Messages done, in the order of adding.
  std::size_t finished() const { return finished_; }
  bool done() const { return posted_ == pieces_.size() && finished_ == posted_; }

 private:
  transport::Request& request(std::size_t index);
  std::byte* staging(std::size_t index) const { return staging_ + index % kWindow * message_; }

  Direction direction_ = Direction::kSend;
  int peer_ = 0;
  std::uint32_t lane_ = 0;
  kernels::Folding fold_;
  std::size_t message_ = kMessage;
  std::byte* staging_ = nullptr;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<transport::Request>> requests_;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace hccl::exec
