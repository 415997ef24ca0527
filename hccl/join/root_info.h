// The data that a rank needs to join, decoded from HcclRootInfo's 4,108 bytes. The data contains
// the communicator's secret, so it is a credential. Logs show only a short name of eight digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct RootInfo {
  static constexpr std::size_t kBytes = 4108;
  /// The number of bytes that are written and read. HCCL writes no more, either. FlagCX relies on
  /// this limit, because it has room for only 256 bytes of root info.
  static constexpr std::size_t kUsedBytes = 256;
  static constexpr std::size_t kTextBytes = 64;  ///< the root's address as text comes first

  Uuid id{};            ///< names the communicator
  Key secret{};         ///< any process that has the secret may join
  std::string address;  ///< of the root
  std::uint16_t port = 0;
  /// The root listens at one of this many ports, from `port` on, and peers must try them. 1 if
  /// peers know the port.
  std::uint16_t ports = 1;

  /// Does not change the bytes behind kUsedBytes.
  void encode(std::span<char, kBytes> out) const;
  /// kPara for bytes that encode() did not make.
  static Result<RootInfo> decode(std::span<const char, kBytes> bytes);

  std::string name() const;  ///< eight hex digits for logs
};

}  // namespace hccl::join
