// What a message's 64-bit tag says: which mesh, which sender, which lane.
#pragma once

#include <bit>
#include <cstdint>

#include "hccl/base/auth.h"

namespace hccl::transport::ofi {

/// Lane in bits 0..8, sender in bits 9..31, and above it a number that only the ranks of the mesh
/// know, so that a stranger's message matches no receive.
class Tags {
 public:
  static constexpr int kLaneBits = 9;
  static constexpr int kRankBits = 23;
  /// A lane of our own: the sender closes its mesh.
  static constexpr std::uint32_t kGoodbye = 256;
  static constexpr int kLeastBits = kLaneBits + kRankBits;

  /// The bits that a provider leaves to us: those below the highest one of its mem_tag_format.
  static int usable_bits(std::uint64_t mem_tag_format) {
    return mem_tag_format == 0 ? 64 : 64 - std::countl_zero(mem_tag_format);
  }

  /// `bits` is at least kLeastBits.
  Tags(const Key& key, int bits) {
    const Key derived = derive(key, "ofi tag v1");
    std::uint64_t secret = 0;
    for (int i = 0; i < 4; ++i) secret = secret << 8 | derived[static_cast<std::size_t>(i)];
    const int room = bits - kLeastBits;
    mesh_ = room == 0 ? 0 : (secret & ((std::uint64_t{1} << room) - 1)) << kLeastBits;
  }
  std::uint64_t tag(int sender, std::uint32_t lane) const {
    return mesh_ | static_cast<std::uint64_t>(sender) << kLaneBits | lane;
  }
  /// The bits that say who sent it; a receive that ignores them takes what anybody sent.
  static constexpr std::uint64_t kSenderMask = ((std::uint64_t{1} << kRankBits) - 1) << kLaneBits;
  static int sender(std::uint64_t tag) {
    return static_cast<int>((tag & kSenderMask) >> kLaneBits);
  }

 private:
  std::uint64_t mesh_ = 0;
};

}  // namespace hccl::transport::ofi
