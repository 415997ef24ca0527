// One transfer of a step in motion: cut into messages, several under way at once; a reducing
// receive folds each message as it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/base/types.h"
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

  /// Bytes of one message at most; the same on both sides. Also the unit in which receives are
  /// folded.
  static constexpr std::size_t kMessage = std::size_t{512} << 10;
  /// Messages of one transfer under way at once.
  static constexpr std::size_t kWindow = 4;

  /// Starts over for a new transfer; keeps its memory. Add pieces, then advance() until done().
  void begin(Direction direction, int peer, std::uint32_t lane, DataType type, ReduceOp op);
  void add(Piece piece);
  /// Posts and completes what it can. A failure is final; requests may still be under way then.
  Status advance(transport::Mesh& mesh);
  /// Messages done, of those added; in order.
  std::size_t finished() const { return finished_; }
  bool done() const { return posted_ == pieces_.size() && finished_ == posted_; }

 private:
  struct Slot {
    transport::Request request;
    std::unique_ptr<std::byte[]> staging;  // of reducing receives; allocated once
  };
  Slot& slot(std::size_t index);

  Direction direction_ = Direction::kSend;
  int peer_ = 0;
  std::uint32_t lane_ = 0;
  DataType type_ = DataType::kInt8;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace hccl::exec
