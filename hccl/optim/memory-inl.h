// Loads and stores of each element type. Compiled once for each instruction set (see step.cc).

#if defined(HCCL_OPTIM_MEMORY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_OPTIM_MEMORY_INL_H
#undef HCCL_OPTIM_MEMORY_INL_H
#else
#define HCCL_OPTIM_MEMORY_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "hccl/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::optim::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace vectors = hccl::kernels::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

using Halves = hn::Rebind<std::uint16_t, Tag<float>>;

/// Elements that are computed in their own type.
template <class T>
struct Plain {
  using Element = T;
  using Number = T;
  static HWY_INLINE Vec<T> load(const T* from) { return hn::LoadU(Tag<T>(), from); }
  static HWY_INLINE void store(Vec<T> v, T* to) { hn::StoreU(v, Tag<T>(), to); }
};

struct Bf16 {
  using Element = std::uint16_t;
  using Number = float;
  static HWY_INLINE Vec<float> load(const Element* from) {
    const Tag<std::uint32_t> words;
    return vectors::as_float(hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(Halves(), from))));
  }
  static HWY_INLINE void store(Vec<float> v, Element* to) {
    const auto bits = vectors::as_bits(vectors::one_nan(v));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), vectors::word(1));
    const auto rounded = hn::Add(hn::Add(bits, vectors::word(0x7FFF)), odd);
    const auto upper = hn::BitCast(Tag<std::int32_t>(), hn::ShiftRight<16>(rounded));
    hn::StoreU(hn::DemoteTo(Halves(), upper), Halves(), to);
  }
};

struct Fp16 {
  using Element = std::uint16_t;
  using Number = float;
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_TARGET == HWY_NEON  // the processor converts
  using Half = hn::Rebind<hwy::float16_t, Tag<float>>;
  static HWY_INLINE Vec<float> load(const Element* from) {
    return hn::PromoteTo(Tag<float>(), hn::BitCast(Half(), hn::LoadU(Halves(), from)));
  }
  static HWY_INLINE void store(Vec<float> v, Element* to) {
    hn::StoreU(hn::BitCast(Halves(), hn::DemoteTo(Half(), v)), Halves(), to);
  }
#else
  using Bits = vectors::Small<5, 10, true>;
  static HWY_INLINE Vec<float> load(const Element* from) {
    return Bits::widen(hn::PromoteTo(Tag<std::uint32_t>(), hn::LoadU(Halves(), from)));
  }
  static HWY_INLINE void store(Vec<float> v, Element* to) {
    const auto bits = hn::BitCast(Tag<std::int32_t>(), Bits::narrow(v));
    hn::StoreU(hn::DemoteTo(Halves(), bits), Halves(), to);
  }
#endif
};

/// The element types of a span: Given for gradients and rounded copies of master weights, Kept for
/// parameters and states.
template <class GivenType, class KeptType>
struct Memory {
  using Given = GivenType;
  using Kept = KeptType;
  using Number = typename Kept::Number;
  static constexpr std::size_t kLanes = HWY_LANES(Number);
};

}  // namespace hccl::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HCCL_OPTIM_MEMORY_INL_H
