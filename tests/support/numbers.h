// Small whole numbers in every HCCL element type, written and read without the library's own
// conversions: the oracle of the collective tests. The numbers, and the tests' sums and products of
// them, are exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "hccl/base/types.h"

namespace hccl::testing {

#define HCCL_TYPE(name, number, bytes, word) DataType::name,
inline constexpr DataType kAllTypes[] = {HCCL_DATA_TYPES(HCCL_TYPE)};
#undef HCCL_TYPE

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
};

inline FloatFormat float_format(DataType type) {
  switch (type) {
    case DataType::kFp16:
      return {5, 10};
    case DataType::kBfp16:
      return {8, 7};
    case DataType::kFp32:
      return {8, 23};
    case DataType::kFp64:
      return {11, 52};
    case DataType::kFp8E4M3:
      return {4, 3};
    case DataType::kFp8E5M2:
      return {5, 2};
    default:
      return {0, 0};
  }
}

/// The bits of a whole number >= 0 that the type can hold exactly.
inline std::uint64_t encode(DataType type, std::uint64_t value) {
  const FloatFormat format = float_format(type);
  if (format.exponent_bits == 0 || value == 0) return value;
  const int exponent = std::bit_width(value) - 1;
  const std::uint64_t fraction = value ^ (std::uint64_t{1} << exponent);
  const int shift = format.mantissa_bits - exponent;
  const std::uint64_t mantissa = shift >= 0 ? fraction << shift : fraction >> -shift;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  return (static_cast<std::uint64_t>(exponent + bias) << format.mantissa_bits) | mantissa;
}

/// Writes element i of an array, which may be unaligned.
inline void put(DataType type, std::byte* array, std::size_t i, std::uint64_t value) {
  const std::uint64_t bits = encode(type, value);
  unsigned char wide[16] = {};
  std::memcpy(wide, &bits, sizeof bits);
  std::memcpy(array + i * size_of(type), wide, size_of(type));
}

inline std::uint64_t get_bits(DataType type, const std::byte* array, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, array + i * size_of(type), size_of(type) < 8 ? size_of(type) : 8);
  return bits;
}

inline bool holds(DataType type, const std::byte* array, std::size_t i, std::uint64_t value) {
  const std::size_t bytes = size_of(type) < 8 ? size_of(type) : 8;
  const std::uint64_t mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
  return get_bits(type, array, i) == (encode(type, value) & mask);
}

/// Folds the numbers of all ranks; number(rank) returns a rank's number.
template <class Number>
std::uint64_t fold(ReduceOp op, int size, const Number& number) {
  std::uint64_t out = number(0);
  for (int rank = 1; rank < size; ++rank) {
    const std::uint64_t next = number(rank);
    if (op == ReduceOp::kSum) out += next;
    if (op == ReduceOp::kProd) out *= next;
    if (op == ReduceOp::kMax) out = std::max(out, next);
    if (op == ReduceOp::kMin) out = std::min(out, next);
  }
  return out;
}

}  // namespace hccl::testing
