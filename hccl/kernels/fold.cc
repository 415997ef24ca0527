// fold(): compiled once for every instruction set Highway knows here, chosen at run time.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hccl/kernels/kernels.h"

// Vectors without a fixed size do not fit in structs; SSSE3 alone is not worth a fifth copy.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/kernels/fold.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "hccl/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

/// The inputs, from some byte on.
struct Inputs {
  const std::byte* const* from;
  std::size_t number;  // at least two
};

/// One Quad of the result, `at` bytes into the data. All inputs are read before `out` is written.
template <class Type, class Op>
HWY_INLINE void fold_block(const Inputs& in, std::size_t at, std::byte* out) {
  auto sum = enter<Op>(Type::get(in.from[0] + at));
  sum = join<Op>(sum, enter<Op>(Type::get(in.from[1] + at)));
  for (std::size_t i = 2; i < in.number; ++i) {
    sum = join<Op>(sum, enter<Op>(Type::get(in.from[i] + at)));
  }
  Type::put(leave<Op>(sum), out + at);
}

/// Asks for the cache lines that a pair of blocks at `from` will need two or more pairs later.
template <std::size_t kBytes>
HWY_INLINE void prefetch_ahead(const std::byte* from) {
  constexpr std::size_t kLine = 64, kAhead = 512;
  for (std::size_t i = 0; i < kBytes; i += kLine) {
    hwy::Prefetch(from + kAhead + i);
  }
}

/// Two blocks side by side. Widening costs so many instructions a byte that, with three streams or
/// more, the processor's own prefetch falls behind; longer pieces and a hint make up for it
/// (measured: up to 1.9 times as fast out of memory). Plain types and pairs are faster without.
template <class Type, class Op>
HWY_INLINE void fold_two_blocks(const Inputs& in, std::size_t at, std::byte* out) {
  constexpr std::size_t kBytes = Type::kBytes;
  auto sum = enter<Op>(Type::get(in.from[0] + at));
  auto next = enter<Op>(Type::get(in.from[0] + at + kBytes));
  prefetch_ahead<2 * kBytes>(in.from[0] + at);
  for (std::size_t i = 1; i < in.number; ++i) {
    sum = join<Op>(sum, enter<Op>(Type::get(in.from[i] + at)));
    next = join<Op>(next, enter<Op>(Type::get(in.from[i] + at + kBytes)));
    prefetch_ahead<2 * kBytes>(in.from[i] + at);
  }
  Type::put(leave<Op>(sum), out + at);
  Type::put(leave<Op>(next), out + at + kBytes);
}

/// Fewer bytes than a block: the same arithmetic on padded copies, so that an element's bits do not
/// depend on where it lies.
template <class Type, class Op>
HWY_NOINLINE void fold_rest(const Inputs& in, std::size_t at, std::size_t bytes, std::byte* out) {
  std::byte padded[Type::kBytes] = {};
  std::memcpy(padded, in.from[0] + at, bytes);
  auto sum = enter<Op>(Type::get(padded));
  for (std::size_t i = 1; i < in.number; ++i) {
    std::memcpy(padded, in.from[i] + at, bytes);
    sum = join<Op>(sum, enter<Op>(Type::get(padded)));
  }
  Type::put(leave<Op>(sum), padded);
  std::memcpy(out + at, padded, bytes);
}

template <class Type, class Op>
void fold_all(const Inputs& in, std::size_t bytes, std::byte* out) {
  std::size_t at = 0;
  if constexpr (Type::kWidens) {
    if (in.number > 2) {
      for (; bytes - at >= 2 * Type::kBytes; at += 2 * Type::kBytes) {
        fold_two_blocks<Type, Op>(in, at, out);
      }
    }
  }
  for (; bytes - at >= Type::kBytes; at += Type::kBytes) {
    fold_block<Type, Op>(in, at, out);
  }
  if (at < bytes) {
    fold_rest<Type, Op>(in, at, bytes - at, out);
  }
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
  }
}

template <class Type>
void fold_floats(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
  switch (op) {
    case ReduceOp::kSum:
      return fold_all<Type, Sum>(in, bytes, out);
    case ReduceOp::kProd:
      return fold_all<Type, Prod>(in, bytes, out);
    case ReduceOp::kMax:
      return fold_all<Type, MaxOfFloats>(in, bytes, out);
    case ReduceOp::kMin:
      return fold_all<Type, MinOfFloats>(in, bytes, out);
  }
}

void fold_vectors(DataType type, ReduceOp op, const std::byte* const* from, std::size_t number,
                  std::byte* out, std::size_t bytes) {
  const Inputs in{from, number};
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
    case DataType::kInt128:  // no vectors of it: fold_int128()
    case DataType::kHif8:
    case DataType::kFp8E8M0:
      return;
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::kernels {
namespace {

HWY_EXPORT(fold_vectors);
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
  }
  return a;
}

template <ReduceOp op>
void fold_int128(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) {
  for (std::size_t at = 0; at < count * sizeof(Int128); at += sizeof(Int128)) {
    Int128 result;
    std::memcpy(&result, inputs[0] + at, sizeof(result));
    for (const std::byte* input : inputs.subspan(1)) {
      Int128 next;
      std::memcpy(&next, input + at, sizeof(next));
      result = join_int128(op, result, next);
    }
    std::memcpy(out + at, &result, sizeof(result));
  }
}

}  // namespace

bool reducible(DataType type) {
  return type != DataType::kHif8 && type != DataType::kFp8E8M0 && size_of(type) != 0;
}

void fold(DataType type, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* out,
          std::size_t count) {
  const std::size_t bytes = count * size_of(type);
  if (inputs.empty() || bytes == 0) {
    return;
  }
  if (inputs.size() == 1) {
    if (inputs[0] != out) {
      std::memcpy(out, inputs[0], bytes);
    }
    return;
  }
  if (type == DataType::kInt128) {
    switch (op) {
      case ReduceOp::kSum:
        return fold_int128<ReduceOp::kSum>(inputs, out, count);
      case ReduceOp::kProd:
        return fold_int128<ReduceOp::kProd>(inputs, out, count);
      case ReduceOp::kMax:
        return fold_int128<ReduceOp::kMax>(inputs, out, count);
      case ReduceOp::kMin:
        return fold_int128<ReduceOp::kMin>(inputs, out, count);
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(fold_vectors)(type, op, inputs.data(), inputs.size(), out, bytes);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace hccl::kernels
#endif  // HWY_ONCE
