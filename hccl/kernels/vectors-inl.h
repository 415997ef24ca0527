// The four vectors that a fold keeps in registers, and how each element type fills them. Compiled
// once for each instruction set (see fold.cc).

// The include guard toggles, so that Highway can include this file again for every target.
#if defined(HCCL_KERNELS_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_KERNELS_VECTORS_INL_H
#undef HCCL_KERNELS_VECTORS_INL_H
#else
#define HCCL_KERNELS_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hccl/kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using VecOf = hn::Vec<Tag<T>>;
/// Bytes of one vector of T. All targets compiled here have vectors of a fixed size.
template <class T>
inline constexpr std::size_t kVectorBytes = HWY_LANES(T) * sizeof(T);

/// The data of one step of a fold: exactly four vectors for every type. A plain type needs four
/// loads, bf16 (widened to fp32) two, an 8-bit float one.
template <class V>
struct Quad {
  V a, b, c, d;
};

// Accesses memory only as bytes, so no pointer to a misaligned element is ever dereferenced.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::Set(d, lane);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(),
                                  reinterpret_cast<const std::uint8_t*>(from)));
#endif
}

/// Stands for the other three vectors of a Quad if the data ends within the first vector (Short).
/// These vectors are zero and are not stored; the compiler removes the arithmetic on them.
struct Beyond {
  Beyond operator+(std::size_t) const { return {}; }
};
template <class Byte>
struct Short {
  Byte* at;
  std::size_t bytes;
  Beyond operator+(std::size_t) const { return {}; }
};

// Uses a masked load if the processor has one. The alternative, a copy on the stack, is slower: its
// load waits until the stores of the copy have finished.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, Short<const std::byte> from) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::MaskedLoad(hn::FirstN(bytes, from.bytes), bytes,
                                       reinterpret_cast<const std::uint8_t*>(from.at)));
#else
#if HWY_TARGET == HWY_AVX2
  if (from.bytes % sizeof(std::uint32_t) == 0) {
    const hn::Repartition<std::uint32_t, D> words;
    return hn::BitCast(d, hn::MaskedLoad(hn::FirstN(words, from.bytes / sizeof(std::uint32_t)),
                                         words, reinterpret_cast<const std::uint32_t*>(from.at)));
  }
#endif
  std::byte padded[sizeof(hn::TFromD<D>) * hn::MaxLanes(D())] = {};
  std::memcpy(padded, from.at, from.bytes);
  return load(d, padded);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, Beyond) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Zero(d);
#else  // not every target has Zero() for every type
  return hn::BitCast(d, hn::Zero(hn::Repartition<std::uint8_t, D>()));
#endif
}

/// With kStream, `to` must be aligned to the vector.
template <Store kStore, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  const hn::TFromD<D> lane = hn::GetLane(v);
  std::memcpy(to, &lane, sizeof(lane));
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  if constexpr (kStore == Store::kStream) {
    hn::Stream(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(to));
  } else {
    hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(to));
  }
  (void)d;
#endif
}

template <Store kStore, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Short<std::byte> to) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::BlendedStore(hn::BitCast(bytes, v), hn::FirstN(bytes, to.bytes), bytes,
                   reinterpret_cast<std::uint8_t*>(to.at));
  (void)d;
#else
  std::byte padded[sizeof(hn::TFromD<D>) * hn::MaxLanes(D())];
  store<Store::kCached>(d, v, padded);
  std::memcpy(to.at, padded, to.bytes);
#endif
}
template <Store kStore, class D>
HWY_INLINE void store(D, hn::Vec<D>, Beyond) {}

/// Instruction sets disagree on the sign and payload of the NaN that an operation returns. So every
/// NaN leaves a fold as the type's quiet NaN with sign and payload cleared.
template <class V>
HWY_INLINE V one_nan(V v) {
  using T = hn::TFromV<V>;
  const Tag<T> d;
  using Bits = hwy::MakeUnsigned<T>;
  const Bits quiet =
      sizeof(T) == 4 ? static_cast<Bits>(0x7FC00000u) : static_cast<Bits>(0x7FF8000000000000ull);
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(Tag<Bits>(), quiet)), v);
}

/// one_nan() for a whole Quad, at less cost if the Quad holds no NaN. A NaN in any of the vectors
/// makes one sum a NaN. Infinities may make that sum a NaN; then the slower path runs and gives the
/// same result.
HWY_INLINE Quad<VecOf<float>> one_nan(const Quad<VecOf<float>>& q) {
  const auto sum = hn::Add(hn::Add(q.a, q.b), hn::Add(q.c, q.d));
  if (HWY_LIKELY(hn::AllFalse(Tag<float>(), hn::IsNaN(sum)))) return q;
  return {one_nan(q.a), one_nan(q.b), one_nan(q.c), one_nan(q.d)};
}

// ---- Element types in memory: kBytes of memory fill one Quad, in vectors of kVector bytes.
// kWidens: elements are widened to fp32. From and To are pointers to kBytes bytes, or Short. ----

/// Integers, fp32 and fp64: unchanged.
template <class T>
struct Plain {
  using V = VecOf<T>;
  static constexpr bool kWidens = false;
  static constexpr std::size_t kVector = kVectorBytes<T>;
  static constexpr std::size_t kBytes = 4 * kVector;

  template <class From>
  static HWY_INLINE Quad<V> get(From p) {
    const Tag<T> d;
    return {load(d, p), load(d, p + kVector), load(d, p + 2 * kVector), load(d, p + 3 * kVector)};
  }
  template <Store kStore, class To>
  static HWY_INLINE void put(const Quad<V>& q, To p) {
    const Tag<T> d;
    store<kStore>(d, finish(q.a), p);
    store<kStore>(d, finish(q.b), p + kVector);
    store<kStore>(d, finish(q.c), p + 2 * kVector);
    store<kStore>(d, finish(q.d), p + 3 * kVector);
  }

 private:
  static HWY_INLINE V finish(V v) {
    if constexpr (hwy::IsFloat<T>()) {
      return one_nan(v);
    } else {
      return v;
    }
  }
};

using U32 = VecOf<std::uint32_t>;
using F32 = VecOf<float>;

HWY_INLINE U32 as_bits(F32 v) { return hn::BitCast(Tag<std::uint32_t>(), v); }
HWY_INLINE F32 as_float(U32 v) { return hn::BitCast(Tag<float>(), v); }
HWY_INLINE U32 word(std::uint32_t x) { return hn::Set(Tag<std::uint32_t>(), x); }

/// bf16. Each 32-bit element of a vector holds two bf16 elements, each the upper half of an fp32: a
/// shift gives the first one, a mask the second one. So no instruction set needs a shuffle.
struct Bf16 {
  static constexpr bool kWidens = true;
  static constexpr std::size_t kVector = kVectorBytes<std::uint32_t>;
  static constexpr std::size_t kBytes = 2 * kVector;

  template <class From>
  static HWY_INLINE Quad<F32> get(From p) {
    const Tag<std::uint32_t> d;
    const U32 v = load(d, p), w = load(d, p + kVector), high = word(0xFFFF0000u);
    return {as_float(hn::ShiftLeft<16>(v)), as_float(hn::And(v, high)),
            as_float(hn::ShiftLeft<16>(w)), as_float(hn::And(w, high))};
  }
  template <Store kStore, class To>
  static HWY_INLINE void put(const Quad<F32>& q, To p) {
    const Tag<std::uint32_t> d;
    const Quad<F32> r = one_nan(q);
    store<kStore>(d, join_halves(round(r.a), round(r.b)), p);
    store<kStore>(d, join_halves(round(r.c), round(r.d)), p + kVector);
  }

 private:
  /// Rounds v to nearest even in the upper half; the lower half holds leftover bits. A carry out of
  /// the mantissa raises the exponent, up to infinity, as it should. The quiet NaN does not
  /// overflow.
  static HWY_INLINE U32 round(F32 v) {
    const U32 bits = as_bits(v);
    const U32 odd = hn::And(hn::ShiftRight<16>(bits), word(1));
    return hn::Add(hn::Add(bits, word(0x7FFF)), odd);
  }
  static HWY_INLINE U32 join_halves(U32 first, U32 second) {
    return hn::OrAnd(hn::ShiftRight<16>(first), second, word(0xFFFF0000u));
  }
};

/// Conversions between fp32 and a float of 1 sign bit, kExp exponent bits and kMan mantissa bits,
/// in the low bits of 32-bit integers. With kInf, the highest exponent means infinity or NaN, as in
/// IEEE 754. Without kInf (OCP FP8 E4M3), all ones is NaN, infinity does not exist, and overflow
/// gives NaN.
template <int kExp, int kMan, bool kInf>
struct Small {
  static constexpr int kBias = (1 << (kExp - 1)) - 1;
  static constexpr int kDrop = 23 - kMan;
  static constexpr std::uint32_t kMagnitude = (1u << (kExp + kMan)) - 1;
  static constexpr std::uint32_t kOverflow = kInf ? kMagnitude ^ ((1u << kMan) - 1) : kMagnitude;
  static constexpr std::uint32_t kNan = kInf ? kOverflow | (1u << (kMan - 1)) : kMagnitude;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;

  /// Widens the element in the low bits; ignores the bits above the element.
  static HWY_INLINE F32 widen(U32 code) {
    const U32 sign = hn::ShiftLeft<31 - kExp - kMan>(hn::And(code, word(kMagnitude + 1)));
    const U32 moved = hn::ShiftLeft<kDrop>(hn::And(code, word(kMagnitude)));
    const U32 normal = hn::Add(moved, word(kRebias));
    // A denormal has no leading one: its mantissa counts units in the last place of the lowest
    // normal number. Adding the bits of that number gives a normal number; subtracting the number
    // again is exact.
    const U32 lowest = word(kRebias + (1u << 23));
    const U32 denormal = as_bits(hn::Sub(as_float(hn::Add(moved, lowest)), as_float(lowest)));
    U32 bits = hn::IfThenElse(hn::Lt(moved, word(1u << 23)), denormal, normal);
    if constexpr (kInf) {
      const auto special = hn::Gt(moved, word((kOverflow << kDrop) - 1));
      bits = hn::IfThenElse(special, hn::Add(normal, word(kRebias)), bits);
    } else {
      bits = hn::IfThenElse(hn::Eq(moved, word(kNan << kDrop)), word(0x7FC00000u), bits);
    }
    return as_float(hn::Or(bits, sign));
  }

  /// Rounds once, to nearest even. In the result the bits above the element are zero.
  static HWY_INLINE U32 narrow(F32 v) {
    const U32 bits = as_bits(v);
    const U32 magnitude = hn::And(bits, word(0x7FFFFFFFu));
    const U32 sign = hn::ShiftRight<31 - kExp - kMan>(hn::Xor(bits, magnitude));
    const U32 odd = hn::And(hn::ShiftRight<kDrop>(magnitude), word(1));
    const U32 half = word((1u << (kDrop - 1)) - 1 - kRebias);
    const U32 rounded = hn::ShiftRight<kDrop>(hn::Add(magnitude, hn::Add(odd, half)));
    U32 code = hn::Min(rounded, word(kOverflow));
    // Below the lowest normal number, the addition of this constant rounds: the sum's last place in
    // fp32 has the weight of the denormal's last place.
    const U32 shift = word(static_cast<std::uint32_t>(127 + 24 - kBias - kMan) << 23);
    const U32 denormal = hn::Sub(as_bits(hn::Add(as_float(magnitude), as_float(shift))), shift);
    code = hn::IfThenElse(hn::Lt(magnitude, word(kRebias + (1u << 23))), denormal, code);
    // In a format with infinity, every NaN becomes the quiet NaN here. In the other format the
    // clamp above has produced the NaN; it gets no sign.
    const auto is_nan = kInf ? hn::Gt(magnitude, word(0x7F800000u)) : hn::Eq(code, word(kNan));
    return hn::IfThenElse(is_nan, word(kNan), hn::Or(code, sign));
  }
};

/// fp16.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_TARGET == HWY_NEON
struct Fp16 {  // the processor converts
  using Half = hn::Rebind<hwy::float16_t, Tag<float>>;
  static constexpr bool kWidens = true;
  static constexpr std::size_t kVector = kVectorBytes<float> / 2;
  static constexpr std::size_t kBytes = 4 * kVector;

  template <class From>
  static HWY_INLINE Quad<F32> get(From p) {
    return {widen(p), widen(p + kVector), widen(p + 2 * kVector), widen(p + 3 * kVector)};
  }
  template <Store kStore, class To>
  static HWY_INLINE void put(const Quad<F32>& q, To p) {
    const Half d;
    store<kStore>(d, hn::DemoteTo(d, one_nan(q.a)), p);
    store<kStore>(d, hn::DemoteTo(d, one_nan(q.b)), p + kVector);
    store<kStore>(d, hn::DemoteTo(d, one_nan(q.c)), p + 2 * kVector);
    store<kStore>(d, hn::DemoteTo(d, one_nan(q.d)), p + 3 * kVector);
  }

 private:
  template <class From>
  static HWY_INLINE F32 widen(From p) {
    return hn::PromoteTo(Tag<float>(), load(Half(), p));
  }
};
#else
struct Fp16 {  // two elements in each 32-bit integer, as in Bf16
  using Bits = Small<5, 10, true>;
  static constexpr bool kWidens = true;
  static constexpr std::size_t kVector = kVectorBytes<std::uint32_t>;
  static constexpr std::size_t kBytes = 2 * kVector;

  template <class From>
  static HWY_INLINE Quad<F32> get(From p) {
    const Tag<std::uint32_t> d;
    const U32 v = load(d, p), w = load(d, p + kVector);
    return {Bits::widen(v), Bits::widen(hn::ShiftRight<16>(v)), Bits::widen(w),
            Bits::widen(hn::ShiftRight<16>(w))};
  }
  template <Store kStore, class To>
  static HWY_INLINE void put(const Quad<F32>& q, To p) {
    const Tag<std::uint32_t> d;
    store<kStore>(d, hn::Or(Bits::narrow(q.a), hn::ShiftLeft<16>(Bits::narrow(q.b))), p);
    store<kStore>(d, hn::Or(Bits::narrow(q.c), hn::ShiftLeft<16>(Bits::narrow(q.d))), p + kVector);
  }
};
#endif

/// 8-bit floats: four elements in each 32-bit integer.
template <class Bits>
struct Fp8 {
  static constexpr bool kWidens = true;
  static constexpr std::size_t kVector = kVectorBytes<std::uint32_t>;
  static constexpr std::size_t kBytes = kVector;

  template <class From>
  static HWY_INLINE Quad<F32> get(From p) {
    const U32 v = load(Tag<std::uint32_t>(), p);
    return {Bits::widen(v), Bits::widen(hn::ShiftRight<8>(v)), Bits::widen(hn::ShiftRight<16>(v)),
            Bits::widen(hn::ShiftRight<24>(v))};
  }
  template <Store kStore, class To>
  static HWY_INLINE void put(const Quad<F32>& q, To p) {
    const U32 ab = hn::Or(Bits::narrow(q.a), hn::ShiftLeft<8>(Bits::narrow(q.b)));
    const U32 cd = hn::Or(Bits::narrow(q.c), hn::ShiftLeft<8>(Bits::narrow(q.d)));
    store<kStore>(Tag<std::uint32_t>(), hn::Or(ab, hn::ShiftLeft<16>(cd)), p);
  }
};
using Fp8E4M3 = Fp8<Small<4, 3, false>>;
using Fp8E5M2 = Fp8<Small<5, 2, true>>;

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HCCL_KERNELS_VECTORS_INL_H
