// The reductions on vectors in registers. Compiled once for each instruction set (see fold.cc).

// The include guard toggles, so that Highway can include this file again for every target.
#if defined(HCCL_KERNELS_OPERATIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_KERNELS_OPERATIONS_INL_H
#undef HCCL_KERNELS_OPERATIONS_INL_H
#else
#define HCCL_KERNELS_OPERATIONS_INL_H
#endif

#include <hwy/highway.h>

#include "hccl/kernels/kernels.h"
#include "hccl/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::kernels::HWY_NAMESPACE {

// ---- Operations: `enter` on every input, `join` from left to right, `leave` on the result. ----

struct AsIs {
  static HWY_INLINE auto enter(auto v) { return v; }
  static HWY_INLINE auto leave(auto v, const Finish&) { return v; }
};
struct Sum : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Add(a, b); }
};
/// Always multiplies and divides: a factor or a divisor of 1 changes nothing.
struct SumFinished : Sum {
  template <class V>
  static HWY_INLINE V leave(V v, const Finish& finish) {
    using T = hn::TFromV<V>;
    const V factor = hn::Set(Tag<T>(), static_cast<T>(finish.factor));
    const V divisor = hn::Set(Tag<T>(), static_cast<T>(finish.divisor));
    return hn::Div(hn::Mul(v, factor), divisor);
  }
};
struct Prod : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Mul(a, b); }
};
/// Products of bytes, two bytes in each 16-bit element.
struct ProdOfBytes : AsIs {
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    const V low = hn::Set(Tag<std::uint16_t>(), 0x00FF),
            high = hn::Set(Tag<std::uint16_t>(), 0xFF00);
    return hn::Or(hn::And(hn::Mul(a, b), low), hn::Mul(hn::ShiftRight<8>(a), hn::And(b, high)));
  }
};
struct MaxOfIntegers : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Max(a, b); }
};
struct MinOfIntegers : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Min(a, b); }
};
/// Computes "a if a < b, else b" for (a, b) and for (b, a). Both results agree on ordinary numbers.
/// Where the results differ, the `or` of their bits is right: -0 for -0 and +0, a NaN for a NaN and
/// any number.
struct MinOfFloats : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Or(lesser(a, b), lesser(b, a)); }

 private:
  template <class V>
  static HWY_INLINE V lesser(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    return hn::Min(a, b);  // one instruction with exactly this meaning
#else
    return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
  }
};
/// The maximum is the negated minimum of the negated inputs.
struct MaxOfFloats {
  static HWY_INLINE auto enter(auto v) { return hn::Neg(v); }
  static HWY_INLINE auto leave(auto v, const Finish&) { return hn::Neg(v); }
  static HWY_INLINE auto join(auto a, auto b) { return MinOfFloats::join(a, b); }
};

struct And : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::And(a, b); }
};
struct Or : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Or(a, b); }
};
struct Xor : AsIs {
  static HWY_INLINE auto join(auto a, auto b) { return hn::Xor(a, b); }
};
/// The bitwise operation on each input's truth value, 1 or 0.
template <class Bitwise>
struct Logical : Bitwise {
  template <class V>
  static HWY_INLINE V enter(V v) {
    const Tag<hn::TFromV<V>> d;
    return hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::Set(d, 1));
  }
};

template <class Op, class V>
HWY_INLINE Quad<V> enter(const Quad<V>& q) {
  return {Op::enter(q.a), Op::enter(q.b), Op::enter(q.c), Op::enter(q.d)};
}
template <class Op, class V>
HWY_INLINE Quad<V> leave(const Quad<V>& q, const Finish& finish) {
  return {Op::leave(q.a, finish), Op::leave(q.b, finish), Op::leave(q.c, finish),
          Op::leave(q.d, finish)};
}
template <class Op, class V>
HWY_INLINE Quad<V> join(const Quad<V>& x, const Quad<V>& y) {
  return {Op::join(x.a, y.a), Op::join(x.b, y.b), Op::join(x.c, y.c), Op::join(x.d, y.d)};
}

}  // namespace hccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HCCL_KERNELS_OPERATIONS_INL_H
