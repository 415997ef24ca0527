// fold() and copy(). fold() chooses a part by type; short sums, reductions of 128-bit integers and
// copies are here.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hccl/kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

template <Store kStore>
void copy_vectors(const std::byte* from, std::byte* to, std::size_t bytes) {
  const Tag<std::uint8_t> d;
  constexpr std::size_t kVector = kVectorBytes<std::uint8_t>;
  std::size_t at = std::min(to_aligned(to, kVector), bytes);
  std::memcpy(to, from, at);
  for (; bytes - at >= 4 * kVector; at += 4 * kVector) {
    const auto a = load(d, from + at), b = load(d, from + at + kVector);
    const auto c = load(d, from + at + 2 * kVector), e = load(d, from + at + 3 * kVector);
    store<kStore>(d, a, to + at);
    store<kStore>(d, b, to + at + kVector);
    store<kStore>(d, c, to + at + 2 * kVector);
    store<kStore>(d, e, to + at + 3 * kVector);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

void copy_cached(const std::byte* from, std::byte* to, std::size_t bytes) {
  copy_vectors<Store::kCached>(from, to, bytes);
}

void copy_streaming(const std::byte* from, std::byte* to, std::size_t bytes) {
  copy_vectors<Store::kStream>(from, to, bytes);
  hwy::FlushStream();
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {
namespace {

HWY_EXPORT(copy_cached);
HWY_EXPORT(copy_streaming);
HWY_EXPORT(target_name);

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

Int128 join_int128(ReduceOp op, Int128 a, Int128 b) {
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<Int128>(static_cast<Uint128>(a) + static_cast<Uint128>(b));
    case ReduceOp::kProd:
      return static_cast<Int128>(static_cast<Uint128>(a) * static_cast<Uint128>(b));
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kLogicalAnd:
      return a & b;
    case ReduceOp::kLogicalOr:
      return a | b;
    case ReduceOp::kLogicalXor:
      return a ^ b;
    default:
      return a;  // fold() handles kAvg, fold_bits() bitwise reductions
  }
}

void fold_int128(ReduceOp op, std::span<const std::byte* const> inputs, std::byte* out,
                 std::size_t count) {
  const auto get = [op](const std::byte* from) {
    Int128 value;
    std::memcpy(&value, from, sizeof(value));
    return logical(op) ? Int128{value != 0} : value;
  };
  for (std::size_t at = 0; at < count * sizeof(Int128); at += sizeof(Int128)) {
    Int128 result = get(inputs[0] + at);
    for (const std::byte* input : inputs.subspan(1)) {
      result = join_int128(op, result, get(input + at));
    }
    std::memcpy(out + at, &result, sizeof(result));
  }
}

// Sums of at most this many bytes do not use the vector code, because filling the vectors would
// take longer than the additions.
constexpr std::size_t kShort = 64;
template <class T>
void add(const std::byte* from, std::byte* to) {
  T sum, next;
  std::memcpy(&sum, to, sizeof sum);
  std::memcpy(&next, from, sizeof next);
  sum += next;
  if constexpr (std::is_floating_point_v<T>) {
    sum = sum == sum ? sum : std::numeric_limits<T>::quiet_NaN();  // as in the vector code
  }
  std::memcpy(to, &sum, sizeof sum);
}
// The length is constant, so the compiler uses vectors and copies without a call.
template <class T, std::size_t kBytes>
void sum_part(std::span<const std::byte* const> inputs, std::byte* out, std::size_t at) {
  std::byte sums[kBytes];
  std::memcpy(sums, inputs[0] + at, kBytes);
  for (const std::byte* input : inputs.subspan(1)) {
    for (std::size_t i = 0; i < kBytes; i += sizeof(T)) add<T>(input + at + i, sums + i);
  }
  std::memcpy(out + at, sums, kBytes);
}
template <class T>
void sum_short(std::span<const std::byte* const> inputs, std::byte* out, std::size_t bytes) {
  constexpr std::size_t kVector = 16;
  if (bytes == kShort) return sum_part<T, kShort>(inputs, out, 0);
  std::size_t at = 0;
  for (; bytes - at >= kVector; at += kVector) sum_part<T, kVector>(inputs, out, at);
  for (; at < bytes; at += sizeof(T)) sum_part<T, sizeof(T)>(inputs, out, at);
}

/// Divides integers, towards zero. `Wide` can represent each value of T and the divisor.
template <class T, class Wide = T>
void divide(std::byte* data, std::size_t bytes, double divisor) {
  const auto by = static_cast<Wide>(divisor);
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, data + at, sizeof value);
    value = static_cast<T>(static_cast<Wide>(value) / by);
    std::memcpy(data + at, &value, sizeof value);
  }
}

void divide_integers(DataType type, std::byte* data, std::size_t bytes, double divisor) {
  switch (type) {
    case DataType::kInt8:
      return divide<std::int8_t, std::int64_t>(data, bytes, divisor);
    case DataType::kUint8:
      return divide<std::uint8_t, std::uint64_t>(data, bytes, divisor);
    case DataType::kInt16:
      return divide<std::int16_t, std::int64_t>(data, bytes, divisor);
    case DataType::kUint16:
      return divide<std::uint16_t, std::uint64_t>(data, bytes, divisor);
    case DataType::kInt32:
      return divide<std::int32_t, std::int64_t>(data, bytes, divisor);
    case DataType::kUint32:
      return divide<std::uint32_t>(data, bytes, divisor);
    case DataType::kInt64:
      return divide<std::int64_t>(data, bytes, divisor);
    case DataType::kUint64:
      return divide<std::uint64_t>(data, bytes, divisor);
    case DataType::kInt128:
      return divide<Int128>(data, bytes, divisor);
    default:
      return;  // floats are divided before they are rounded
  }
}

}  // namespace

void copy_long(const std::byte* from, std::byte* to, std::size_t bytes, Store store) {
  if (store == Store::kStream) {
    HWY_DYNAMIC_DISPATCH(copy_streaming)(from, to, bytes);
  } else if (repeats_slowly(reinterpret_cast<std::uintptr_t>(from),
                            reinterpret_cast<std::uintptr_t>(to))) {
    HWY_DYNAMIC_DISPATCH(copy_cached)(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void fold(DataType type, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* out,
          std::size_t count, Store store, const Finish& finish) {
  const std::size_t bytes = count * size_of(type);
  if (inputs.empty() || bytes == 0) return;
  if (op == ReduceOp::kAvg && !floating(type)) {
    fold(type, ReduceOp::kSum, inputs, out, count);
    if (finish.divisor != 1) divide_integers(type, out, bytes, finish.divisor);
    return;
  }
  const bool plain = finish.nothing();
  if (inputs.size() == 1 && plain && !logical(op)) {
    return copy(inputs[0], out, bytes, store);
  }
  if (bytes <= kShort && op == ReduceOp::kSum && plain) {
    switch (type) {
      case DataType::kFp32:
        return sum_short<float>(inputs, out, bytes);
      case DataType::kFp64:
        return sum_short<double>(inputs, out, bytes);
      case DataType::kInt32:
      case DataType::kUint32:
        return sum_short<std::uint32_t>(inputs, out, bytes);
      case DataType::kInt64:
      case DataType::kUint64:
        return sum_short<std::uint64_t>(inputs, out, bytes);
      default:
        break;
    }
  }
  if (type == DataType::kInt128 && !bitwise(op)) {
    return fold_int128(op, inputs, out, count);
  }
  if (reinterpret_cast<std::uintptr_t>(out) % size_of(type) != 0) {
    store = Store::kCached;  // an aligned vector would begin within an element
  }
  const Inputs in{inputs.data(), inputs.size(), store, finish};
  if (bitwise(op)) return fold_bits(op, in, bytes, out);
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64:
      return fold_integers(type, op, in, bytes, out);
    case DataType::kFp32:
    case DataType::kFp64:
      return fold_floats(type, op, in, bytes, out);
    case DataType::kFp16:
    case DataType::kBfp16:
      return fold_halves(type, op, in, bytes, out);
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
      return fold_fp8(type, op, in, bytes, out);
    case DataType::kInt128:  // fold_int128()
    case DataType::kHif8:
    case DataType::kFp8E8M0:
      return;  // not reducible
  }
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace hccl::kernels
#endif  // HWY_ONCE
