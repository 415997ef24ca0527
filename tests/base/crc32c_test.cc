// CRC32C on every instruction set of this machine, against the definition bit by bit.
#include "hccl/base/crc32c.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace hccl {
namespace {

std::uint32_t bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

template <class Body>
void on_each_instruction_set(const Body& body) {
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    SCOPED_TRACE(hwy::TargetName(left & -left));
    hwy::GetChosenTarget().Update(left & -left);
    body();
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// RFC 3720, B.4, and the usual check value.
TEST(Crc32c, KnownAnswers) {
  on_each_instruction_set([] {
    std::vector<std::byte> bytes(32);
    EXPECT_EQ(crc32c(0, bytes), 0x8A9136AAu);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
    EXPECT_EQ(crc32c(0, bytes), 0x62A8AB43u);
    for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
    EXPECT_EQ(crc32c(0, bytes), 0x46DD794Eu);
    constexpr std::string_view kDigits = "123456789";
    EXPECT_EQ(crc32c(0, std::as_bytes(std::span(kDigits))), 0xE3069283u);
    EXPECT_EQ(crc32c(0, {}), 0u);
  });
}

TEST(Crc32c, AllLengthsAndPlacesAndCuts) {
  std::vector<std::byte> bytes(3000);
  std::uint64_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  std::vector<std::uint32_t> expected;
  for (std::size_t size = 0; size < 1200; ++size) {
    expected.push_back(bit_by_bit(std::span(bytes).subspan(size % 65, size)));
  }
  on_each_instruction_set([&] {
    for (std::size_t size = 0; size < expected.size(); ++size) {
      const auto part = std::span<const std::byte>(bytes).subspan(size % 65, size);
      ASSERT_EQ(crc32c(0, part), expected[size]) << size;
      const std::size_t cut = size * 7 % (size + 1);
      ASSERT_EQ(crc32c(crc32c(0, part.first(cut)), part.subspan(cut)), expected[size]) << size;
    }
    const auto all = std::span<const std::byte>(bytes);
    ASSERT_EQ(crc32c(0, all), bit_by_bit(all));
  });
}

}  // namespace
}  // namespace hccl
