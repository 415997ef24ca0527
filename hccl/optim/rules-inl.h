// Each rule has the form of its formula: p is the parameter, g the gradient, s are the states. The
// constructor of a rule computes its coefficients in double: with beta2 = 0.999, 1 - beta2 computed
// in float would be off by 1.3e-5 of its value. Compiled once for each instruction set (see
// step.cc).

#if defined(HCCL_OPTIM_RULES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_OPTIM_RULES_INL_H
#undef HCCL_OPTIM_RULES_INL_H
#else
#define HCCL_OPTIM_RULES_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>

#include "hccl/hccl_optim.h"
#include "hccl/optim/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl::optim::HWY_NAMESPACE {

template <class T>
HWY_INLINE Vec<T> all(double x) {
  return hn::Set(Tag<T>(), static_cast<T>(x));
}

/// a * b + c, rounded once or twice, as the processor does it.
template <class V>
HWY_INLINE V mul_add(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}

/// The average of squares. It is rounded as in torch, so that training gives the same bits.
template <class V>
HWY_INLINE V mean_square(V average, V keep, V rest, V x) {
  return mul_add(hn::Mul(rest, x), x, hn::Mul(average, keep));
}

/// average += (x - average) * weight, starting from the nearer end, as torch's lerp does.
template <class T>
struct Lerp {
  explicit Lerp(double weight)
      : coefficient(all<T>(weight < 0.5 ? weight : weight - 1)), from_average(weight < 0.5) {}
  HWY_INLINE Vec<T> operator()(Vec<T> average, Vec<T> x) const {
    return mul_add(coefficient, hn::Sub(x, average), from_average ? average : x);
  }
  Vec<T> coefficient;
  bool from_average;
};

/// Weight decay as in torch: added to the gradient, unless it is decoupled.
template <class T>
struct Decay {
  explicit Decay(const HcclOptimNumbers& n, double decoupled_factor)
      : on(n.weight_decay != 0),
        decoupled((n.flags & HCCL_OPTIM_DECOUPLED) != 0),
        factor(all<T>(decoupled ? decoupled_factor : n.weight_decay)) {}
  HWY_INLINE void operator()(Vec<T>& p, Vec<T>& g) const {
    if (!on) return;  // 0 times infinity is not 0
    if (decoupled) {
      p = hn::Mul(p, factor);
    } else {
      g = mul_add(p, factor, g);
    }
  }
  bool on, decoupled;
  Vec<T> factor;
};

/// The number of states of a rule; some of them may be absent.
template <int kNumber>
struct States {
  static constexpr int kStates = kNumber;
};

template <class T>
struct Sgd : States<1> {
  using V = Vec<T>;
  Sgd(const HcclOptimNumbers& n, void* const* states)
      : decay(n, 1),
        has_momentum(states[0] != nullptr),
        first(n.step == 1),
        nesterov((n.flags & HCCL_OPTIM_NESTEROV) != 0),
        momentum(all<T>(n.momentum)),
        rest(all<T>(1 - n.dampening)),
        minus_lr(all<T>(-n.lr)) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    decay(p, g);
    if (has_momentum) {
      s[0] = first ? g : mul_add(g, rest, hn::Mul(s[0], momentum));
      g = nesterov ? mul_add(s[0], momentum, g) : s[0];
    }
    p = mul_add(g, minus_lr, p);
  }

  Decay<T> decay;
  bool has_momentum, first, nesterov;
  V momentum, rest, minus_lr;
};

/// The averages of Adam and the rules related to it.
template <class T>
struct Moments {
  using V = Vec<T>;
  explicit Moments(const HcclOptimNumbers& n)
      : mean(1 - n.beta1), beta2(all<T>(n.beta2)), rest2(all<T>(1 - n.beta2)) {}
  HWY_INLINE void operator()(V g, V* s) const {
    s[0] = mean(s[0], g);
    s[1] = mean_square(s[1], beta2, rest2, g);
  }
  Lerp<T> mean;
  V beta2, rest2;
};

/// Adam; AdamW if weight decay is decoupled.
template <class T>
struct Adam : States<3> {
  using V = Vec<T>;
  Adam(const HcclOptimNumbers& n, void* const* states)
      : decay(n, 1 - n.lr * n.weight_decay),
        moments(n),
        amsgrad(states[2] != nullptr),
        correction(all<T>(std::sqrt(1 - std::pow(n.beta2, n.step)))),
        eps(all<T>(n.eps)),
        minus_step(all<T>(-n.lr / (1 - std::pow(n.beta1, n.step)))) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    decay(p, g);
    moments(g, s);
    V square = s[1];
    if (amsgrad) {
      square = s[2] = hn::IfThenElse(hn::Gt(s[2], s[1]), s[2], s[1]);
    }
    const V denominator = hn::Add(hn::Div(hn::Sqrt(square), correction), eps);
    p = hn::Add(p, hn::Div(hn::Mul(minus_step, s[0]), denominator));
  }

  Decay<T> decay;
  Moments<T> moments;
  bool amsgrad;
  V correction, eps, minus_step;
};

template <class T>
struct BertAdam : States<2> {
  using V = Vec<T>;
  BertAdam(const HcclOptimNumbers& n, void* const*)
      : moments(n),
        decays(n.weight_decay > 0),
        decay(all<T>(n.weight_decay)),
        eps(all<T>(n.eps)),
        minus_lr(all<T>(-n.lr)) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    moments(g, s);
    V update = hn::Div(s[0], hn::Add(hn::Sqrt(s[1]), eps));
    if (decays) update = mul_add(p, decay, update);
    p = mul_add(update, minus_lr, p);
  }

  Moments<T> moments;
  bool decays;
  V decay, eps, minus_lr;
};

template <class T>
struct Adadelta : States<2> {
  using V = Vec<T>;
  Adadelta(const HcclOptimNumbers& n, void* const*)
      : decay(n, 1),
        rho(all<T>(n.beta2)),
        rest(all<T>(1 - n.beta2)),
        eps(all<T>(n.eps)),
        minus_lr(all<T>(-n.lr)) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    decay(p, g);
    s[0] = mean_square(s[0], rho, rest, g);
    const V deviation = hn::Sqrt(hn::Add(s[0], eps));
    const V delta = hn::Mul(hn::Div(hn::Sqrt(hn::Add(s[1], eps)), deviation), g);
    s[1] = mean_square(s[1], rho, rest, delta);
    p = mul_add(delta, minus_lr, p);
  }

  Decay<T> decay;
  V rho, rest, eps, minus_lr;
};

template <class T>
struct RmsProp : States<3> {
  using V = Vec<T>;
  RmsProp(const HcclOptimNumbers& n, void* const* states)
      : decay(n, 1),
        mean(1 - n.beta2),
        has_momentum(states[1] != nullptr),
        centered(states[2] != nullptr),
        alpha(all<T>(n.beta2)),
        rest(all<T>(1 - n.beta2)),
        momentum(all<T>(n.momentum)),
        eps(all<T>(n.eps)),
        minus_lr(all<T>(-n.lr)) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    decay(p, g);
    s[0] = mean_square(s[0], alpha, rest, g);
    V square = s[0];
    if (centered) {
      s[2] = mean(s[2], g);
      square = hn::NegMulAdd(s[2], s[2], square);
    }
    V update = hn::Div(g, hn::Add(hn::Sqrt(square), eps));
    if (has_momentum) update = s[1] = mul_add(s[1], momentum, update);
    p = mul_add(update, minus_lr, p);
  }

  Decay<T> decay;
  Lerp<T> mean;
  bool has_momentum, centered;
  V alpha, rest, momentum, eps, minus_lr;
};

/// RMSprop as in TensorFlow: eps is inside the root, averages move towards the new value, and a
/// decoupled decay does not use the learning rate.
template <class T>
struct RmsPropTf : States<3> {
  using V = Vec<T>;
  RmsPropTf(const HcclOptimNumbers& n, void* const* states)
      : decay(n, 1 - n.weight_decay),
        has_momentum(states[1] != nullptr),
        centered(states[2] != nullptr),
        lr_in_momentum((n.flags & HCCL_OPTIM_LR_IN_MOMENTUM) != 0),
        rest(all<T>(1 - n.beta2)),
        momentum(all<T>(n.momentum)),
        eps(all<T>(n.eps)),
        lr(all<T>(n.lr)) {}

  HWY_INLINE void operator()(V& p, V g, V* s) const {
    decay(p, g);
    s[0] = mul_add(hn::Sub(hn::Mul(g, g), s[0]), rest, s[0]);
    V square = s[0];
    if (centered) {
      s[2] = mul_add(hn::Sub(g, s[2]), rest, s[2]);
      square = hn::NegMulAdd(s[2], s[2], square);
    }
    V update = hn::Div(g, hn::Sqrt(hn::Add(square, eps)));
    if (!has_momentum) {
      p = hn::NegMulAdd(update, lr, p);
    } else if (lr_in_momentum) {
      s[1] = mul_add(s[1], momentum, hn::Mul(update, lr));
      p = hn::Sub(p, s[1]);
    } else {
      s[1] = mul_add(s[1], momentum, update);
      p = hn::NegMulAdd(s[1], lr, p);
    }
  }

  Decay<T> decay;
  bool has_momentum, centered, lr_in_momentum;
  V rest, momentum, eps, lr;
};

// ---- Rules of two passes. first() updates the states and computes the terms of the sums over the
// parameter or its rows. second() moves the parameter with the values that optim.cc computed from
// the sums. ----

template <class T>
struct Lamb : States<2> {
  using V = Vec<T>;
  static constexpr int kSums = 2;  // sums of p * p and update * update
  explicit Lamb(const HcclOptimNumbers& n)
      : moments(n),
        decays(n.weight_decay != 0),
        decay(all<T>(n.weight_decay)),
        eps(all<T>(n.eps)) {}

  HWY_INLINE V update(V p, const V* s) const {
    const V u = hn::Div(s[0], hn::Add(hn::Sqrt(s[1]), eps));
    return decays ? mul_add(p, decay, u) : u;
  }
  template <class Add>
  HWY_INLINE void first(V p, V g, V* s, const Add& add) const {
    moments(g, s);
    const V u = update(p, s);
    add(0, p, p);
    add(1, u, u);
  }
  /// values[0] is lr times the ratio of norms.
  HWY_INLINE void second(V& p, V, const V* s, const double* values) const {
    p = hn::NegMulAdd(update(p, s), all<T>(values[0]), p);
  }

  Moments<T> moments;
  bool decays;
  V decay, eps;
};

template <class T>
struct AdamP : States<2> {
  using V = Vec<T>;
  static constexpr int kSums = 4;  // sums of g * p, g * g, p * p and update * p
  explicit AdamP(const HcclOptimNumbers& n)
      : moments(n),
        nesterov((n.flags & HCCL_OPTIM_NESTEROV) != 0),
        correction(all<T>(std::sqrt(1 - std::pow(n.beta2, n.step)))),
        eps(all<T>(n.eps)),
        minus_step(all<T>(-n.lr / (1 - std::pow(n.beta1, n.step)))) {}

  HWY_INLINE V update(V g, const V* s) const {
    const V mean = nesterov ? moments.mean(s[0], g) : s[0];
    return hn::Div(mean, hn::Add(hn::Div(hn::Sqrt(s[1]), correction), eps));
  }
  template <class Add>
  HWY_INLINE void first(V p, V g, V* s, const Add& add) const {
    moments(g, s);
    add(0, g, p);
    add(1, g, g);
    add(2, p, p);
    add(3, update(g, s), p);
  }
  /// values[0] is the multiple of p that is subtracted from the update; values[1] is the factor by
  /// which weight decay multiplies p.
  HWY_INLINE void second(V& p, V g, const V* s, const double* values) const {
    const V u = hn::NegMulAdd(all<T>(values[0]), p, update(g, s));
    p = mul_add(u, minus_step, hn::Mul(p, all<T>(values[1])));
  }

  Moments<T> moments;
  bool nesterov;
  V correction, eps, minus_step;
};

}  // namespace hccl::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HCCL_OPTIM_RULES_INL_H
