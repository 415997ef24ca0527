// The contents of a message's 64-bit tag: mesh, sender, lane, number of the message in the lane,
// and a few bits of its size.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hccl/base/bytes.h"

namespace hccl::transport::ofi {

/// If libfabric's TCP provider matches a message with a receive of another size, it ends the
/// connection. The tag contains a hash of the size, so this happens in only 1 of 8,192 cases. The
/// tag contains the number of the message, so the next message does not take the place of a message
/// with a wrong size. The upper bits are a number that only the ranks of the mesh know, so a
/// message from outside the mesh matches no receive.
class Tags {
 public:
  static constexpr int kLaneBits = 9;
  static constexpr int kRankBits = 20;
  static constexpr int kNumberBits = 6;
  static constexpr int kSizeBits = 13;
  static constexpr int kLeastBits = kLaneBits + kRankBits + kNumberBits + kSizeBits;
  /// The internal lane of the last message, which a rank sends when it closes its mesh.
  static constexpr std::uint32_t kGoodbye = 256;

  /// The number of bits that a provider leaves to its user: those up to the highest set bit of its
  /// mem_tag_format, or all if no bit is set.
  static int usable_bits(std::uint64_t mem_tag_format) {
    return mem_tag_format == 0 ? 64 : 64 - std::countl_zero(mem_tag_format);
  }

  /// `key` must serve no other purpose, because a part of it travels in clear. `bits` is at least
  /// kLeastBits.
  Tags(const Key& key, int bits) {
    std::uint64_t secret = 0;
    for (int i = 0; i < 4; ++i) secret = secret << 8 | key[static_cast<std::size_t>(i)];
    const int room = bits - kLeastBits;
    mesh_ = room == 0 ? 0 : (secret & ((std::uint64_t{1} << room) - 1)) << kLeastBits;
  }
  /// Returns the tag of a message. `number` counts the messages of the lane from 0 on both sides.
  std::uint64_t tag(int sender, std::uint32_t lane, std::uint64_t number, std::size_t size) const {
    std::uint64_t tag = mix(size) >> (64 - kSizeBits);
    tag = tag << kNumberBits | (number & ((std::uint64_t{1} << kNumberBits) - 1));
    tag = tag << kRankBits | static_cast<std::uint64_t>(sender);
    return mesh_ | tag << kLaneBits | lane;
  }
  /// The bits of the sender. A receive that ignores them takes messages from any sender.
  static constexpr std::uint64_t kSenderMask = ((std::uint64_t{1} << kRankBits) - 1) << kLaneBits;
  static constexpr std::uint64_t kSizeMask = ((std::uint64_t{1} << kSizeBits) - 1)
                                             << (kLaneBits + kRankBits + kNumberBits);
  static int sender(std::uint64_t tag) {
    return static_cast<int>((tag & kSenderMask) >> kLaneBits);
  }

 private:
  /// Spreads a size over all bits.
  static std::uint64_t mix(std::uint64_t size) {
    size = (size + 1) * 0x9e3779b97f4a7c15u;
    return (size ^ size >> 29) * 0xbf58476d1ce4e5b9u;
  }
  std::uint64_t mesh_ = 0;
};

}  // namespace hccl::transport::ofi
