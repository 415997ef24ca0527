// Carry-less multiplication folds long inputs. The processor's CRC instruction handles short inputs
// and the remainder of long ones; a processor without it uses a table. Highway compiles the file
// once for each instruction set.
#include "hccl/base/crc32c.h"

#include <array>
#include <cstring>

#define HWY_WANT_AVX3_DL  // has long carry-less multiplications
#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/base/crc32c.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef HCCL_BASE_CRC32C_ONCE
#define HCCL_BASE_CRC32C_ONCE
namespace hccl {
namespace {

// The order of bits is reversed: the highest bit is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit, a = times_x(a)) product ^= (b >> bit & 1) != 0 ? a : 0;
  return product;
}

/// x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(unsigned n) {
  std::uint32_t result = 0x80000000;
  for (std::uint32_t square = 0x40000000; n != 0; n >>= 1, square = times(square, square)) {
    if ((n & 1) != 0) result = times(result, square);
  }
  return result;
}

/// The factors that fold the two halves of 128 bits into the data `bytes` bytes later. A carry-less
/// product of reversed numbers has an extra factor x, so the exponents are one less.
constexpr std::array<std::uint64_t, 2> moving_on(unsigned bytes) {
  return {std::uint64_t{power_of_x(8 * bytes + 63)} << 32,
          std::uint64_t{power_of_x(8 * bytes - 1)} << 32};
}

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = times_x(table[i]);
  }
  return table;
}();

}  // namespace
}  // namespace hccl
#endif

HWY_BEFORE_NAMESPACE();
namespace hccl::HWY_NAMESPACE {
HWY_INLINE std::uint32_t plain_step(std::uint32_t crc, std::byte byte) {
  return (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 255];
}

HWY_INLINE std::uint32_t plain(std::uint32_t crc, const std::byte* from, std::size_t size) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_SSE4
  for (; size >= 8; from += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    crc = static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
  }
#endif
  for (; size != 0; ++from, --size) crc = plain_step(crc, *from);
  return crc;
}

#if HWY_TARGET <= HWY_SSE4 || HWY_TARGET == HWY_NEON
namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::ScalableTag<std::uint64_t>;
using Vector = hn::Vec<Words>;

HWY_INLINE Vector load(const std::byte* from) {
  return hn::BitCast(Words(), hn::LoadU(hn::ScalableTag<std::uint8_t>(),
                                        reinterpret_cast<const std::uint8_t*>(from)));
}

HWY_INLINE Vector fold(Vector sum, Vector factors, Vector next) {
  return hn::Xor(hn::Xor(hn::CLMulLower(sum, factors), hn::CLMulUpper(sum, factors)), next);
}

/// Folds all whole blocks of four vectors and advances past them. `size` must be at least one
/// block.
HWY_INLINE std::uint32_t folded(std::uint32_t crc, const std::byte*& from, std::size_t& size) {
  constexpr std::size_t kBytes = 8 * hn::MaxLanes(Words());
  constexpr auto kFour = moving_on(4 * kBytes);
  constexpr auto kOne = moving_on(kBytes);
  const Vector four = hn::LoadDup128(Words(), kFour.data());
  alignas(64) std::uint64_t rest[8] = {crc};
  Vector a = hn::Xor(load(from), hn::Load(Words(), rest));
  Vector b = load(from + kBytes);
  Vector c = load(from + 2 * kBytes);
  Vector d = load(from + 3 * kBytes);
  for (from += 4 * kBytes, size -= 4 * kBytes; size >= 4 * kBytes;
       from += 4 * kBytes, size -= 4 * kBytes) {
    a = fold(a, four, load(from));
    b = fold(b, four, load(from + kBytes));
    c = fold(c, four, load(from + 2 * kBytes));
    d = fold(d, four, load(from + 3 * kBytes));
  }
  const Vector one = hn::LoadDup128(Words(), kOne.data());
  hn::Store(fold(fold(fold(a, one, b), one, c), one, d), Words(), rest);
  return plain(0, reinterpret_cast<const std::byte*>(rest), kBytes);
}
constexpr std::size_t kLeastFolded = 32 * hn::MaxLanes(Words());
#endif

std::uint32_t Crc32c(std::uint32_t crc, const std::byte* from, std::size_t size) {
  crc = ~crc;
#if HWY_TARGET <= HWY_SSE4 || HWY_TARGET == HWY_NEON
  if (size >= kLeastFolded) crc = folded(crc, from, size);
#endif
  return ~plain(crc, from, size);
}

}  // namespace hccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl {

HWY_EXPORT(Crc32c);

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
  return HWY_DYNAMIC_DISPATCH(Crc32c)(crc, bytes.data(), bytes.size());
}

}  // namespace hccl
#endif
