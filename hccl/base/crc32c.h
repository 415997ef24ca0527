// CRC32C (Castagnoli), the checksum of iSCSI and ext4. It detects every burst of errors of up to 32
// bits, and misses one in four billion of all other errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hccl {

/// Returns the checksum of `bytes`. `crc`: 0, or the checksum of the bytes that come before. The
/// function takes about as long as reading the bytes from the second-level cache.
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace hccl
