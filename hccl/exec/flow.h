// Transfers the data of one step between two ranks. A flow cuts the data into messages and keeps
// several messages under way at once. A reducing receive folds each message when it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/kernels/folding.h"
#include "transport/transport.h"

namespace hccl::exec {

/// Contiguous bytes of a transfer. In a reducing receive, `with` is the other operand of the fold.
struct Piece {
  std::byte* data = nullptr;  ///< a send only reads it
  const std::byte* with = nullptr;
  std::size_t bytes = 0;
};

class Flow {
 public:
  enum class Direction { kSend, kRecv };

  /// The most bytes of one message, unless begin() sets another limit.
  static constexpr std::size_t kMessage = std::size_t{512} << 10;
  /// The most messages of one transfer that are under way at once.
  static constexpr std::size_t kWindow = 4;

  /// Returns the largest message length with which `receives` concurrent reducing receives fit into
  /// `bytes` of staging memory, but at least a useful minimum. If `receives` is 0, returns
  /// kMessage.
  static std::size_t message_within(std::size_t bytes, std::size_t receives);

  /// Starts a new transfer, which reuses the memory of the last transfer. The caller then adds
  /// pieces, and calls advance() until done(). `message` is the most bytes of one message and must
  /// be the same on both sides; receives are folded, by `fold`, in units of this size.
  void begin(Direction direction, int peer, std::uint32_t lane, const kernels::Folding& fold = {},
             std::size_t message = kMessage);
  Direction direction() const { return direction_; }
  int peer() const { return peer_; }
  /// Sets the memory for kWindow messages that wait to be folded. Must be called before add() gets
  /// the first piece that needs this memory.
  void set_staging(std::byte* staging) { staging_ = staging; }
  bool has_staging() const { return staging_ != nullptr; }
  void add(Piece piece);
  /// Starts and completes as many messages as possible. A failure is final; requests may still be
  /// under way after the failure.
  Status advance(transport::Mesh& mesh);
  /// The number of messages that are done. Messages become done in the order in which they were
  /// added.
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
