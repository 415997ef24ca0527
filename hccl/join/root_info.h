// The data that a rank needs to join: HcclRootInfo's 4,108 bytes, decoded. It contains the
// communicator's secret, so it is a credential. Logs show only its short name of eight digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct RootInfo {
  static constexpr std::size_t kBytes = 4108;
  /// The bytes that are written and read. HCCL needs no more than these either, so FlagCX has and
  /// carries only 256 bytes.
  static constexpr std::size_t kUsedBytes = 256;
  static constexpr std::size_t kTextBytes = 64;  ///< the root's address as text comes first

  Uuid id{};            ///< names the communicator
  Key secret{};         ///< any process that has the secret may join
  std::string address;  ///< of the root
  std::uint16_t port = 0;
  /// The number of ports, from `port` on, at which the root may listen if peers must guess;
  /// else 1.
  std::uint16_t ports = 1;

  /// Leaves the bytes behind kUsedBytes alone.
  void encode(std::span<char, kBytes> out) const;
  /// kPara for bytes that encode() did not make.
  static Result<RootInfo> decode(std::span<const char, kBytes> bytes);

  std::string name() const;  ///< eight hex digits for logs
};

}  // namespace hccl::join
