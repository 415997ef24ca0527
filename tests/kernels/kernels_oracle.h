// The right results of fold(), computed the slow way: with exact values in double, tables and
// search instead of bit tricks, and truncated 128-bit integers.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hccl/base/types.h"

namespace hccl::kernels::oracle {

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

/// The layout of a float type.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  std::uint64_t quiet_nan;
};

inline const FloatFormat* float_format(DataType type) {
  static constexpr FloatFormat kFp32{8, 23, true, 0x7FC00000};
  static constexpr FloatFormat kFp64{11, 52, true, 0x7FF8000000000000};
  static constexpr FloatFormat kFp16{5, 10, true, 0x7E00};
  static constexpr FloatFormat kBf16{8, 7, true, 0x7FC0};
  static constexpr FloatFormat kE4M3{4, 3, false, 0x7F};
  static constexpr FloatFormat kE5M2{5, 2, true, 0x7E};
  switch (type) {
    case DataType::kFp32:
      return &kFp32;
    case DataType::kFp64:
      return &kFp64;
    case DataType::kFp16:
      return &kFp16;
    case DataType::kBfp16:
      return &kBf16;
    case DataType::kFp8E4M3:
      return &kE4M3;
    case DataType::kFp8E5M2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

inline bool is_signed_integer(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 ||
         type == DataType::kInt64 || type == DataType::kInt128;
}

/// The value that a code would have if no codes were reserved for infinity and NaN.
inline double plain_value(const FloatFormat& format, std::uint64_t magnitude) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const auto mantissa =
      static_cast<double>(magnitude & ((std::uint64_t{1} << format.mantissa_bits) - 1));
  const double one = std::ldexp(1.0, format.mantissa_bits);
  return exponent == 0 ? std::ldexp(mantissa, 1 - bias - format.mantissa_bits)
                       : std::ldexp(one + mantissa, exponent - bias - format.mantissa_bits);
}

/// Conversion between a float type of at most 16 bits and double, by a table of all its values.
class SmallFloat {
 public:
  explicit SmallFloat(const FloatFormat& format) : format_(format) {
    const int bits = format.exponent_bits + format.mantissa_bits;
    sign_ = 1u << bits;
    // The first code that is no finite number: values that are too large get this code.
    overflow_ = format.has_infinity ? sign_ - (1u << format.mantissa_bits) : sign_ - 1;
    for (std::uint32_t code = 0; code <= overflow_; ++code) {
      values_.push_back(plain_value(format, code));
    }
  }

  [[nodiscard]] double decode(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_ - 1);
    double value = std::nan("");
    if (magnitude < overflow_) {
      value = values_[magnitude];
    } else if (magnitude == overflow_ && format_.has_infinity) {
      value = HUGE_VAL;
    }
    return (code & sign_) != 0 ? -value : value;
  }

  [[nodiscard]] std::uint32_t encode(double value) const {
    if (std::isnan(value)) {
      return static_cast<std::uint32_t>(format_.quiet_nan);
    }
    const std::uint32_t code = nearest(std::fabs(value));
    const bool is_nan = code == overflow_ && !format_.has_infinity;
    return std::signbit(value) && !is_nan ? code | sign_ : code;
  }

 private:
  [[nodiscard]] std::uint32_t nearest(double magnitude) const {
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) {
      return overflow_;
    }
    const auto high = static_cast<std::uint32_t>(above - values_.begin());
    const std::uint32_t low = high - 1;
    const double to_low = magnitude - values_[low], to_high = values_[high] - magnitude;
    if (to_low == to_high) {
      return low % 2 == 0 ? low : high;
    }
    return to_low < to_high ? low : high;
  }

  FloatFormat format_;
  std::uint32_t sign_;
  std::uint32_t overflow_;
  std::vector<double> values_;
};

template <class F>
F join_floats(ReduceOp op, F a, F b) {
  if (op == ReduceOp::kSum) {
    return a + b;
  }
  if (op == ReduceOp::kProd) {
    return a * b;
  }
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<F>::quiet_NaN();
  }
  const bool a_is_less = a < b || (a == b && std::signbit(a));
  return (op == ReduceOp::kMin) == a_is_less ? a : b;
}

inline Wide join_integers(ReduceOp op, Wide a, Wide b) {
  const auto x = static_cast<UnsignedWide>(a), y = static_cast<UnsignedWide>(b);
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<Wide>(x + y);
    case ReduceOp::kProd:
      return static_cast<Wide>(x * y);
    case ReduceOp::kMax:
      return a > b ? a : b;
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
    case ReduceOp::kLogicalAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::kLogicalOr:
      return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::kLogicalXor:
      return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::kAvg:
      break;
  }
  return 0;
}

/// The bits of one element of any type.
inline UnsignedWide bits_of(DataType type, const std::byte* from) {
  UnsignedWide bits = 0;
  for (std::size_t i = size_of(type); i-- > 0;) {
    bits = bits << 8 | std::to_integer<unsigned>(from[i]);
  }
  return bits;
}

class Folder {
 public:
  explicit Folder(DataType type, double factor = 1, double divisor = 1)
      : type_(type), bytes_(size_of(type)), factor_(factor), divisor_(divisor) {
    if (const FloatFormat* format = float_format(type); format != nullptr && bytes_ <= 2) {
      small_.emplace_back(*format);
    }
  }

  /// The bits of element `index` of the fold.
  [[nodiscard]] UnsignedWide fold(ReduceOp op, const std::vector<const std::byte*>& inputs,
                                  std::size_t index) const {
    std::vector<UnsignedWide> bits;
    for (const std::byte* input : inputs) {
      bits.push_back(bits_of(type_, input + index * bytes_));
    }
    if (bits.size() == 1 && factor_ == 1 && divisor_ == 1) {
      const bool truth =
          op == ReduceOp::kLogicalAnd || op == ReduceOp::kLogicalOr || op == ReduceOp::kLogicalXor;
      return truth ? UnsignedWide{bits[0] != 0} : bits[0];
    }
    if (!small_.empty()) {
      return small_[0].encode(fold_floats<float>(op, bits, [&](UnsignedWide code) {
        return static_cast<float>(small_[0].decode(static_cast<std::uint32_t>(code)));
      }));
    }
    if (type_ == DataType::kFp32) {
      const float result = fold_floats<float>(op, bits, [](UnsignedWide code) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(code));
      });
      return std::isnan(result) ? float_format(type_)->quiet_nan
                                : std::bit_cast<std::uint32_t>(result);
    }
    if (type_ == DataType::kFp64) {
      const double result = fold_floats<double>(op, bits, [](UnsignedWide code) {
        return std::bit_cast<double>(static_cast<std::uint64_t>(code));
      });
      return std::isnan(result) ? float_format(type_)->quiet_nan
                                : std::bit_cast<std::uint64_t>(result);
    }
    return fold_integers(op, bits);
  }

  /// The whole result, `count` elements.
  [[nodiscard]] std::vector<std::byte> fold_all(ReduceOp op,
                                                const std::vector<const std::byte*>& inputs,
                                                std::size_t count) const {
    std::vector<std::byte> result(count * bytes_);
    for (std::size_t i = 0; i < count; ++i) {
      UnsignedWide bits = fold(op, inputs, i);
      for (std::size_t b = 0; b < bytes_; ++b, bits >>= 8) {
        result[i * bytes_ + b] = static_cast<std::byte>(bits & 0xFF);
      }
    }
    return result;
  }

 private:
  template <class F, class Decode>
  F fold_floats(ReduceOp op, const std::vector<UnsignedWide>& bits, Decode decode) const {
    F result = decode(bits[0]);
    for (std::size_t i = 1; i < bits.size(); ++i) {
      result = join_floats(op, result, decode(bits[i]));
    }
    const F product = result * static_cast<F>(factor_);
    return product / static_cast<F>(divisor_);
  }

  [[nodiscard]] UnsignedWide fold_integers(ReduceOp op,
                                           const std::vector<UnsignedWide>& bits) const {
    Wide result = extended(bits[0]);
    for (std::size_t i = 1; i < bits.size(); ++i) {
      // Truncates after every step, so that a maximum sees wrapped values.
      result = extended(static_cast<UnsignedWide>(join_integers(op, result, extended(bits[i]))));
    }
    return static_cast<UnsignedWide>(result);
  }

  /// The number that the low bits represent, sign-extended.
  [[nodiscard]] Wide extended(UnsignedWide bits) const {
    if (bytes_ == sizeof(Wide)) {
      return static_cast<Wide>(bits);
    }
    const UnsignedWide range = UnsignedWide{1} << (8 * bytes_);
    bits &= range - 1;
    const bool negative = is_signed_integer(type_) && bits >= range / 2;
    return static_cast<Wide>(negative ? bits - range : bits);
  }

  DataType type_;
  std::size_t bytes_;
  double factor_;
  double divisor_;
  std::vector<SmallFloat> small_;  // none or one
};

}  // namespace hccl::kernels::oracle
