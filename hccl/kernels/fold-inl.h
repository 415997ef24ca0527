// The loops of fold(), for any element type and reduction. Compiled once for each instruction set.

// The include guard toggles, so that Highway can include this file again for every target.
#if defined(HCCL_KERNELS_FOLD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_KERNELS_FOLD_INL_H
#undef HCCL_KERNELS_FOLD_INL_H
#else
#define HCCL_KERNELS_FOLD_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hccl/kernels/fold_parts.h"
#include "hccl/kernels/operations-inl.h"
#include "hccl/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

/// Computes one Quad of the result, at byte `at` of the data. Reads all inputs before it writes
/// `out`.
template <class Type, class Op, Store kStore>
HWY_INLINE void fold_block(const Inputs& in, std::size_t at, std::byte* out) {
  auto sum = enter<Op>(Type::get(in.from[0] + at));
  for (std::size_t i = 1; i < in.number; ++i) {
    sum = join<Op>(sum, enter<Op>(Type::get(in.from[i] + at)));
  }
  Type::template put<kStore>(leave<Op>(sum, in.finish), out + at);
}

/// fold_block() for two inputs, whose addresses stay in registers.
template <class Type, class Op, Store kStore>
HWY_INLINE void fold_pair(const std::byte* a, const std::byte* b, const Finish& finish,
                          std::byte* out) {
  const auto sum = join<Op>(enter<Op>(Type::get(a)), enter<Op>(Type::get(b)));
  Type::template put<kStore>(leave<Op>(sum, finish), out);
}

/// Prefetches the cache lines of the kBytes bytes that begin kAhead bytes after `from`.
template <std::size_t kBytes, std::size_t kAhead>
HWY_INLINE void prefetch_ahead(const std::byte* from) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < kBytes; i += kLine) {
    hwy::Prefetch(from + kAhead + i);
  }
}

/// Folds two blocks at once. Widening takes so many instructions for each byte that, with three or
/// more inputs, the processor's own prefetch falls behind. Longer pieces (two blocks) and a
/// prefetch compensate for that. Types that are not widened are faster without either; two inputs
/// are faster without the longer pieces.
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

/// Folds less than a block, vector by vector. The arithmetic is the same as for whole blocks, so
/// the position of an element does not change its result.
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

/// The distance in bytes of the prefetch for two inputs. This prefetch never goes past the end of
/// an input, because another rank may be writing there.
inline constexpr std::size_t kPairAhead = 2048;

/// Folds bytes [at, bytes) of the inputs. With kStream, `out + at` must be aligned to a vector.
template <class Type, class Op, Store kStore>
void fold_blocks(const Inputs& in, std::size_t at, std::size_t bytes, std::byte* out) {
  if (in.number == 2) {
    const std::byte* const a = in.from[0];
    const std::byte* const b = in.from[1];
    if constexpr (Type::kWidens) {  // a prefetch also helps pairs outside the caches
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

/// Bytes from `p` to the next multiple of `alignment`, which is a power of two.
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

template <class Type>
void fold_floats_of(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out) {
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
      return;  // integers only
  }
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HCCL_KERNELS_FOLD_INL_H
