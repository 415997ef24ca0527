// fold(): compiled once for every instruction set Highway knows here, chosen at run time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hccl/kernels/kernels.h"

// Vectors without a fixed size do not fit in structs; SSSE3 alone is not worth a fifth copy.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "hccl/kernels/operations-inl.h"
#include "hccl/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

/// The inputs, from some byte on, and what happens to the result.
struct Inputs {
  const std::byte* const* from;
  std::size_t number;  // at least one
  Store store;
  Finish finish;
};

/// One Quad of the result, `at` bytes into the data. All inputs are read before `out` is written.
template <class Type, class Op, Store kStore>
HWY_INLINE void fold_block(const Inputs& in, std::size_t at, std::byte* out) {
  auto sum = enter<Op>(Type::get(in.from[0] + at));
  for (std::size_t i = 1; i < in.number; ++i) {
    sum = join<Op>(sum, enter<Op>(Type::get(in.from[i] + at)));
  }
  Type::template put<kStore>(leave<Op>(sum, in.finish), out + at);
}

/// The same of two inputs, whose addresses stay in registers.
template <class Type, class Op, Store kStore>
HWY_INLINE void fold_pair(const std::byte* a, const std::byte* b, const Finish& finish,
                          std::byte* out) {
  const auto sum = join<Op>(enter<Op>(Type::get(a)), enter<Op>(Type::get(b)));
  Type::template put<kStore>(leave<Op>(sum, finish), out);
}

/// Prefetches the cache lines of a block that is needed kAhead bytes later.
template <std::size_t kBytes, std::size_t kAhead>
HWY_INLINE void prefetch_ahead(const std::byte* from) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < kBytes; i += kLine) {
    hwy::Prefetch(from + kAhead + i);
  }
}

/// Two blocks at once. Widening takes so many instructions a byte that, with three inputs or more,
/// the processor's own prefetch falls behind; longer pieces and a prefetch compensate. Types that
/// are not widened are faster without both, pairs of inputs without the longer pieces.
template <class Type, class Op, Store kStore>
HWY_INLINE void fold_two_blocks(const Inputs& in, std::size_t at, std::byte* out) {
  constexpr std::size_t kBytes = Type::kBytes;
  auto sum = enter<Op>(Type::get(in.from[0] + at));
  auto next = enter<Op>(Type::get(in.from[0] + at + kBytes));
  prefetch_ahead<2 * kBytes, 512>(in.from[0] + at);
  for (std::size_t i = 1; i < in.number; ++i) {
    sum = join<Op>(sum, enter<Op>(Type::get(in.from[i] + at)));
    next = join<Op>(next, enter<Op>(Type::get(in.from[i] + at + kBytes)));
    prefetch_ahead<2 * kBytes, 512>(in.from[i] + at);
  }
  Type::template put<kStore>(leave<Op>(sum, in.finish), out + at);
  Type::template put<kStore>(leave<Op>(next, in.finish), out + at + kBytes);
}

/// Fewer bytes than a block, vector by vector: the same arithmetic, so that an element's bits do
/// not depend on where it lies.
template <class Type, class Op>
HWY_NOINLINE void fold_rest(const Inputs& in, std::size_t at, std::size_t bytes, std::byte* out) {
  for (const std::size_t end = at + bytes; at < end; at += Type::kVector) {
    const std::size_t some = std::min(Type::kVector, end - at);
    using From = Short<const std::byte>;
    auto sum = enter<Op>(Type::get(From{in.from[0] + at, some}));
    for (std::size_t i = 1; i < in.number; ++i) {
      sum = join<Op>(sum, enter<Op>(Type::get(From{in.from[i] + at, some})));
    }
    Type::template put<Store::kCached>(leave<Op>(sum, in.finish), Short<std::byte>{out + at, some});
  }
}

/// How far pairs are prefetched, and never past their end: another rank may be writing there.
inline constexpr std::size_t kPairAhead = 2048;

/// From byte `at` on, which is aligned if stores stream.
template <class Type, class Op, Store kStore>
void fold_blocks(const Inputs& in, std::size_t at, std::size_t bytes, std::byte* out) {
  if (in.number == 2) {
    const std::byte* const a = in.from[0];
    const std::byte* const b = in.from[1];
    if constexpr (Type::kWidens) {  // out of memory a prefetch helps pairs, too
      for (; bytes - at >= kPairAhead + Type::kBytes; at += Type::kBytes) {
        prefetch_ahead<Type::kBytes, kPairAhead>(a + at);
        prefetch_ahead<Type::kBytes, kPairAhead>(b + at);
        fold_pair<Type, Op, kStore>(a + at, b + at, in.finish, out + at);
      }
    }
    for (; bytes - at >= Type::kBytes; at += Type::kBytes) {
      fold_pair<Type, Op, kStore>(a + at, b + at, in.finish, out + at);
    }
  } else if constexpr (Type::kWidens) {
    for (; bytes - at >= 2 * Type::kBytes; at += 2 * Type::kBytes) {
      fold_two_blocks<Type, Op, kStore>(in, at, out);
    }
  }
  for (; bytes - at >= Type::kBytes; at += Type::kBytes) {
    fold_block<Type, Op, kStore>(in, at, out);
  }
  if (at < bytes) {
    fold_rest<Type, Op>(in, at, bytes - at, out);
  }
}

/// Bytes up to the next multiple of `alignment`, a power of two.
HWY_INLINE std::size_t to_aligned(const std::byte* p, std::size_t alignment) {
  return (0 - reinterpret_cast<std::uintptr_t>(p)) & (alignment - 1);
}

template <class Type, class Op>
void fold_all(const Inputs& in, std::size_t bytes, std::byte* out) {
  if (in.store == Store::kCached) {
    return fold_blocks<Type, Op, Store::kCached>(in, 0, bytes, out);
  }
  const std::size_t head = std::min(to_aligned(out, Type::kVector), bytes);
  if (head != 0) {
    fold_rest<Type, Op>(in, 0, head, out);
  }
  fold_blocks<Type, Op, Store::kStream>(in, head, bytes, out);
  hwy::FlushStream();
}

/// Sums and products wrap around alike with and without sign, so both share the unsigned code.
template <class Signed>
void fold_integers(bool is_signed, ReduceOp op, const Inputs& in, std::size_t bytes,
                   std::byte* out) {
  using Unsigned = hwy::MakeUnsigned<Signed>;
  switch (op) {
    case ReduceOp::kSum:
      return fold_all<Plain<Unsigned>, Sum>(in, bytes, out);
    case ReduceOp::kProd:
      if constexpr (sizeof(Signed) == 1) {
        return fold_all<Plain<std::uint16_t>, ProdOfBytes>(in, bytes, out);
      } else {
        return fold_all<Plain<Unsigned>, Prod>(in, bytes, out);
      }
    case ReduceOp::kMax:
      return is_signed ? fold_all<Plain<Signed>, MaxOfIntegers>(in, bytes, out)
                       : fold_all<Plain<Unsigned>, MaxOfIntegers>(in, bytes, out);
    case ReduceOp::kMin:
      return is_signed ? fold_all<Plain<Signed>, MinOfIntegers>(in, bytes, out)
                       : fold_all<Plain<Unsigned>, MinOfIntegers>(in, bytes, out);
    case ReduceOp::kLogicalAnd:
      return fold_all<Plain<Unsigned>, Logical<And>>(in, bytes, out);
    case ReduceOp::kLogicalOr:
      return fold_all<Plain<Unsigned>, Logical<Or>>(in, bytes, out);
    case ReduceOp::kLogicalXor:
      return fold_all<Plain<Unsigned>, Logical<Xor>>(in, bytes, out);
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return;  // not of integers; fold_bits()
  }
}

/// Bits have no type.
void fold_bits(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  using Bits = Plain<std::uint64_t>;
  if (op == ReduceOp::kBitAnd) return fold_all<Bits, And>(in, bytes, out);
  if (op == ReduceOp::kBitOr) return fold_all<Bits, Or>(in, bytes, out);
  return fold_all<Bits, Xor>(in, bytes, out);
}

template <class Type>
void fold_floats(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      if (!in.finish.nothing()) return fold_all<Type, SumFinished>(in, bytes, out);
      return fold_all<Type, Sum>(in, bytes, out);
    case ReduceOp::kProd:
      return fold_all<Type, Prod>(in, bytes, out);
    case ReduceOp::kMax:
      return fold_all<Type, MaxOfFloats>(in, bytes, out);
    case ReduceOp::kMin:
      return fold_all<Type, MinOfFloats>(in, bytes, out);
    default:
      return;  // of integers only
  }
}

void fold_vectors(DataType type, ReduceOp op, const std::byte* const* from, std::size_t number,
                  std::byte* out, std::size_t bytes, Store store, const Finish& finish) {
  const Inputs in{from, number, store, finish};
  if (bitwise(op)) return fold_bits(op, in, bytes, out);
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return fold_integers<std::int8_t>(type == DataType::kInt8, op, in, bytes, out);
    case DataType::kInt16:
    case DataType::kUint16:
      return fold_integers<std::int16_t>(type == DataType::kInt16, op, in, bytes, out);
    case DataType::kInt32:
    case DataType::kUint32:
      return fold_integers<std::int32_t>(type == DataType::kInt32, op, in, bytes, out);
    case DataType::kInt64:
    case DataType::kUint64:
      return fold_integers<std::int64_t>(type == DataType::kInt64, op, in, bytes, out);
    case DataType::kFp32:
      return fold_floats<Plain<float>>(op, in, bytes, out);
    case DataType::kFp64:
      return fold_floats<Plain<double>>(op, in, bytes, out);
    case DataType::kFp16:
      return fold_floats<Fp16>(op, in, bytes, out);
    case DataType::kBfp16:
      return fold_floats<Bf16>(op, in, bytes, out);
    case DataType::kFp8E4M3:
      return fold_floats<Fp8E4M3>(op, in, bytes, out);
    case DataType::kFp8E5M2:
      return fold_floats<Fp8E5M2>(op, in, bytes, out);
    case DataType::kInt128:  // no vectors: fold_int128()
    case DataType::kHif8:
    case DataType::kFp8E8M0:
      return;
  }
}

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

HWY_EXPORT(fold_vectors);
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
      return a;  // of floats; of bits, which have no type
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

// Sums so short that finding and filling vectors takes longer than adding.
constexpr std::size_t kShort = 64;
template <class T>
void sum_short(std::span<const std::byte* const> inputs, std::byte* out, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    T sum, next;
    std::memcpy(&sum, inputs[0] + at, sizeof sum);
    for (const std::byte* input : inputs.subspan(1)) {
      std::memcpy(&next, input + at, sizeof next);
      sum += next;
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(sum)) sum = std::numeric_limits<T>::quiet_NaN();  // as vectors do
    }
    std::memcpy(out + at, &sum, sizeof sum);
  }
}

// From about this size up, the C library's memcpy uses rep movsb.
constexpr std::size_t kRepeated = 2048;

}  // namespace

void copy(const std::byte* from, std::byte* to, std::size_t bytes, Store store) {
  if (from == to || bytes == 0) {
    return;
  }
  if (store == Store::kStream) {
    HWY_DYNAMIC_DISPATCH(copy_streaming)(from, to, bytes);
  } else if (bytes >= kRepeated && repeats_slowly(reinterpret_cast<std::uintptr_t>(from),
                                                  reinterpret_cast<std::uintptr_t>(to))) {
    HWY_DYNAMIC_DISPATCH(copy_cached)(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void fold(DataType type, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* out,
          std::size_t count, Store store, const Finish& finish) {
  const std::size_t bytes = count * size_of(type);
  if (inputs.empty() || bytes == 0) {
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
    store = Store::kCached;  // no element of the result begins where a vector may
  }
  HWY_DYNAMIC_DISPATCH(fold_vectors)(type, op, inputs.data(), inputs.size(), out, bytes, store,
                                     finish);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace hccl::kernels
#endif  // HWY_ONCE
