// The frames of one tcp link: a fixed header and, for two of the types, a payload. README.md
// describes the protocol.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "hccl/base/bytes.h"
#include "hccl/base/crc32c.h"

namespace hccl::transport::tcp {

enum class FrameType : std::uint8_t {
  kEager = 1,      ///< a whole small message: `length` payload bytes follow
  kAsk = 2,        ///< a message of `length` bytes waits at the sender for its receive
  kReady = 3,      ///< a receive of `length` bytes is posted for this message
  kData = 4,       ///< the next `length` payload bytes of a message that was declared ready
  kCredit = 5,     ///< `length` units of eager room are free again
  kCorrupted = 6,  ///< received bytes were altered on the way; nothing follows
};

/// 16 bytes, little-endian. The lane and the number in the lane (`sequence`, from 0, wrapping) name
/// a message; each direction has its own numbers.
struct FrameHeader {
  FrameType type;
  std::uint8_t lane;
  std::uint16_t reserved;  ///< zero
  std::uint32_t sequence;
  std::uint64_t length;
};
static_assert(sizeof(FrameHeader) == 16 && std::is_trivially_copyable_v<FrameHeader>);

/// Follows the header if frames have checksums.
struct FrameSums {
  std::uint32_t payload;  ///< CRC32C
  std::uint32_t header;   ///< CRC32C of the frame's number, the header and `payload`
};
struct SummedHeader {
  FrameHeader header;
  FrameSums sums;
};
static_assert(sizeof(SummedHeader) == 24 && std::is_trivially_copyable_v<SummedHeader>);

/// `number` is the frame's number in its direction. Both ends count it and do not send it, so the
/// sums detect dropped, repeated and swapped frames.
inline std::uint32_t header_sum(const SummedHeader& frame, std::uint64_t number) {
  struct {
    std::uint64_t number;
    FrameHeader header;
    std::uint64_t payload;
  } const all{number, frame.header, frame.sums.payload};
  return crc32c(0, std::as_bytes(std::span(&all, 1)));
}

/// A message longer than this waits until its receive is posted.
inline constexpr std::size_t kEagerLimit = 64 * 1024;
/// The most eager bytes that a rank may send on a link before the receiver has matched them. Each
/// message costs its size plus kEagerCost. If there is no room, a small message is sent like a
/// large one.
inline constexpr std::size_t kEagerWindow = 512 * 1024;
inline constexpr std::size_t kEagerCost = 64;
/// The most unmatched eager bytes that all peers together may send to a rank. With many peers, each
/// has an equal share of at least kLeastEagerWindow.
inline constexpr std::size_t kEagerTotal = 2 * 1024 * 1024;
inline constexpr std::size_t kLeastEagerWindow = 8 * 1024;

/// Limits of eager sends on one link: unmatched bytes (window), bytes of one message (limit).
struct Eager {
  std::size_t window = kEagerWindow;
  std::size_t limit = kEagerLimit;
};
/// The limits in a mesh of `ranks` ranks; both ends of a link compute the same.
constexpr Eager eager_among(std::size_t ranks) {
  const std::size_t share = kEagerTotal / std::max<std::size_t>(1, ranks - 1);
  const std::size_t window = std::clamp(share, kLeastEagerWindow, kEagerWindow);
  return {window, std::min(kEagerLimit, window / 2)};
}
/// The most unanswered kAsk frames of a lane; further messages of the lane ask later.
inline constexpr std::size_t kAskWindow = 16;
/// The most receives, on all lanes, that a peer may declare ready before this rank has posted their
/// sends.
inline constexpr std::size_t kReadyCap = 1 << 20;
/// The largest payload of one kData frame, so that lanes share a link fairly.
inline constexpr std::size_t kFragment = 256 * 1024;
/// After about this many bytes in one direction, the other direction and the other links are
/// served: sent bytes are best received while they are still in a cache.
inline constexpr std::size_t kBytesPerTurn = 128 * 1024;

}  // namespace hccl::transport::tcp
