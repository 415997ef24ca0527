// A ring of frames in shared memory: one process writes, one reads. Positions only grow; the place
// of a byte in the ring is its position modulo the ring's size. All frames consist of slots of one
// cache line, so a frame's header never wraps and large payloads are copied aligned.
//
//   payload         frame
//   up to kInline   header (16 bytes) and the payload in the rest of the same line: one slot
//   longer          a header line, then the payload from the next line on
//
// Each side keeps its own position in private memory and only publishes it. Values that the other
// side publishes are checked against the ring before use: a faulty peer is detected and cannot lead
// this process outside of the ring. Threads: one writer, one reader, in any processes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hccl/base/atomics.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

inline constexpr std::size_t kLine = 64;

/// The shared values of one ring. Each line has one writer.
template <class Atomics = StdAtomics>
struct BasicRingControl {
  template <class T>
  using atomic = typename Atomics::template atomic<T>;
  // Written by the ring's writer.
  alignas(kLine) atomic<std::uint64_t> head{0};  ///< position behind the last whole frame
  atomic<std::uint32_t> closed{0};               ///< 1: the writer has closed its mesh
  atomic<std::uint32_t> waiting{0};  ///< 1: the writer waits for room, credit or a receive
  // Written by the ring's reader.
  alignas(kLine) atomic<std::uint64_t> tail{0};  ///< position of the first unread frame
  atomic<std::uint64_t> eager_taken{0};          ///< cost of eager messages received so far
  /// The number of receives posted on each lane so far (modulo 2^32).
  alignas(kLine) std::array<atomic<std::uint32_t>, Mesh::kLanes> posted{};
};
using RingControl = BasicRingControl<>;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(RingControl) % kLine == 0);

/// The description of a frame's payload.
struct Frame {
  std::uint64_t total = 0;  ///< bytes of the whole message
  std::uint32_t piece = 0;  ///< bytes in this frame
  std::uint16_t lane = 0;
  bool eager = false;  ///< sent without a check for a posted receive

  static constexpr std::size_t kHeader = 16;
  static constexpr std::size_t kInline = kLine - kHeader;
  /// Bytes of the ring that a frame with this payload occupies.
  static constexpr std::uint64_t span(std::uint64_t payload) {
    return payload <= kInline ? kLine : kLine + (payload + kLine - 1) / kLine * kLine;
  }
};

/// The memory of a ring. `size` is in bytes: a power of two, at least one line.
struct RingBytes {
  std::byte* data = nullptr;
  std::uint64_t size = 0;

  std::byte* at(std::uint64_t position) const { return data + (position & (size - 1)); }
  void copy_in(std::uint64_t position, const std::byte* from, std::size_t bytes) const {
    const std::size_t first = std::min<std::uint64_t>(bytes, size - (position & (size - 1)));
    if (first != 0) std::memcpy(at(position), from, first);
    if (bytes != first) std::memcpy(data, from + first, bytes - first);
  }
  void copy_out(std::uint64_t position, std::byte* to, std::size_t bytes) const {
    const std::size_t first = std::min<std::uint64_t>(bytes, size - (position & (size - 1)));
    if (first != 0) std::memcpy(to, at(position), first);
    if (bytes != first) std::memcpy(to + first, data, bytes - first);
  }
};

template <class Atomics = StdAtomics>
class BasicRingWriter {
 public:
  using RingControl = BasicRingControl<Atomics>;
  BasicRingWriter() = default;
  BasicRingWriter(RingControl* control, RingBytes bytes) : control_(control), bytes_(bytes) {}

  /// The largest payload that fits now, or -1 if the ring is full. Reads the reader's position only
  /// if the last known position gives less room than `wanted`. Sets corrupt() if the position that
  /// it read is impossible.
  std::int64_t room(std::uint64_t wanted) {
    std::uint64_t free = bytes_.size - (head_ - tail_);
    if (free < Frame::span(wanted)) {
      // seq_cst, like the reader's store (see link.h).
      const std::uint64_t tail = control_->tail.load(std::memory_order_seq_cst);
      if (tail < tail_ || tail > head_ || tail % kLine != 0) {
        corrupt_ = true;
        return -1;
      }
      tail_ = tail;
      free = bytes_.size - (head_ - tail_);
    }
    if (free < kLine) return -1;
    return static_cast<std::int64_t>(std::max<std::uint64_t>(free - kLine, Frame::kInline));
  }

  /// Writes one frame and publishes it. room() must have shown enough room.
  void put(const Frame& frame, const std::byte* payload) {
    std::byte* header = bytes_.at(head_);
    const std::uint64_t about = std::uint64_t{frame.piece} | (std::uint64_t{frame.lane} << 32) |
                                (std::uint64_t{frame.eager} << 48);
    std::memcpy(header, &frame.total, sizeof frame.total);
    std::memcpy(header + sizeof frame.total, &about, sizeof about);
    if (frame.piece <= Frame::kInline) {
      if (frame.piece != 0) std::memcpy(header + Frame::kHeader, payload, frame.piece);
    } else {
      bytes_.copy_in(head_ + kLine, payload, frame.piece);
    }
    head_ += Frame::span(frame.piece);
    control_->head.store(head_, std::memory_order_seq_cst);
    // Meanwhile the processor fetches the next frame's line from the reader's cache.
    __builtin_prefetch(bytes_.at(head_), 1);
  }

  std::uint64_t position() const { return head_; }
  void close() { control_->closed.store(1, std::memory_order_seq_cst); }
  bool corrupt() const { return corrupt_; }
  RingControl& control() const { return *control_; }

 private:
  RingControl* control_ = nullptr;
  RingBytes bytes_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;  // as last seen
  bool corrupt_ = false;
};

enum class Peek { kEmpty, kFrame, kCorrupt };

template <class Atomics = StdAtomics>
class BasicRingReader {
 public:
  using RingControl = BasicRingControl<Atomics>;
  BasicRingReader() = default;
  BasicRingReader(RingControl* control, RingBytes bytes) : control_(control), bytes_(bytes) {}

  /// Reads the next frame's header. Returns kCorrupt if the positions or the header are impossible.
  Peek peek(Frame& frame) {
    if (head_ == tail_) {
      const std::uint64_t head = control_->head.load(std::memory_order_seq_cst);
      if (head == tail_) return Peek::kEmpty;
      if (head < tail_ || head - tail_ > bytes_.size || head % kLine != 0) return Peek::kCorrupt;
      head_ = head;
    }
    // Each value is read once, so a peer that goes on writing cannot change it after the checks.
    auto* words = reinterpret_cast<std::uint64_t*>(bytes_.at(tail_));
    frame.total = Atomics::load_once(words[0]);
    const std::uint64_t about = Atomics::load_once(words[1]);
    frame.piece = static_cast<std::uint32_t>(about);
    frame.lane = static_cast<std::uint16_t>(about >> 32);
    frame.eager = (about >> 48) == 1;
    if ((about >> 48) > 1 || frame.lane >= Mesh::kLanes || frame.piece > frame.total ||
        Frame::span(frame.piece) > head_ - tail_) {
      return Peek::kCorrupt;
    }
    return Peek::kFrame;
  }

  /// Copies the payload of the frame that peek() returned.
  void copy(const Frame& frame, std::byte* to) const {
    if (frame.piece == 0) return;
    if (frame.piece <= Frame::kInline) {
      std::memcpy(to, bytes_.at(tail_) + Frame::kHeader, frame.piece);
    } else {
      bytes_.copy_out(tail_ + kLine, to, frame.piece);
    }
  }

  /// Moves the position behind the frame. release() gives the room up to that position back to the
  /// writer.
  void pop(const Frame& frame) { tail_ += Frame::span(frame.piece); }
  void release() { control_->tail.store(tail_, std::memory_order_seq_cst); }

  std::uint64_t position() const { return tail_; }
  std::uint64_t size() const { return bytes_.size; }
  /// Returns whether the writer has left. Frames may still be in the ring. Call closed() before
  /// peek(): if closed() is true and peek() then finds no frame, none will follow.
  bool closed() const { return control_->closed.load(std::memory_order_seq_cst) != 0; }
  RingControl& control() const { return *control_; }

 private:
  RingControl* control_ = nullptr;
  RingBytes bytes_;
  std::uint64_t head_ = 0;  // as last seen
  std::uint64_t tail_ = 0;
};

using RingWriter = BasicRingWriter<>;
using RingReader = BasicRingReader<>;

}  // namespace hccl::transport::shm
