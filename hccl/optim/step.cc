// The loops over pieces. They are compiled once for every instruction set that Highway supports on
// this architecture; the set is chosen at run time.
#include <cstddef>
#include <cstring>

#include "hccl/base/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hccl/optim/step.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "hccl/optim/memory-inl.h"
#include "hccl/optim/piece.h"
#include "hccl/optim/rules-inl.h"

#undef HCCL_BLOCK
#define HCCL_BLOCK HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace hccl::optim::HWY_NAMESPACE {

/// The addresses of the next elements of a piece. The address of an absent array is null.
template <class Memory>
struct Streams {
  using Given = typename Memory::Given::Element;
  using Kept = typename Memory::Kept::Element;
  Kept* parameter;
  Given* gradient;
  Kept* states[3];
  Given* copy;

  explicit Streams(const Piece& piece)
      : parameter(static_cast<Kept*>(piece.parameter)),
        gradient(static_cast<Given*>(piece.gradient)),
        states{static_cast<Kept*>(piece.states[0]), static_cast<Kept*>(piece.states[1]),
               static_cast<Kept*>(piece.states[2])},
        copy(static_cast<Given*>(piece.copy)) {}
};

/// Copies the last elements of a piece into full vectors. The arithmetic is the same, so an
/// element's bits do not depend on its position.
template <class Memory>
class Tail {
 public:
  Tail(const Streams<Memory>& from, std::size_t at, std::size_t count)
      : from_(from), at_(at), count_(count) {
    get(from.parameter, parameter_);
    get(from.gradient, gradient_);
    for (int k = 0; k < 3; ++k) get(from.states[k], states_[k]);
  }
  Streams<Memory> streams() {
    Streams<Memory> s = from_;
    s.parameter = parameter_;
    s.gradient = gradient_;
    for (int k = 0; k < 3; ++k) {
      if (s.states[k] != nullptr) s.states[k] = states_[k];
    }
    if (s.copy != nullptr) s.copy = copy_;
    return s;
  }
  void put_back() {
    put(parameter_, from_.parameter);
    put(gradient_, from_.gradient);
    for (int k = 0; k < 3; ++k) put(states_[k], from_.states[k]);
    put(copy_, from_.copy);
  }

 private:
  template <class T>
  void get(const T* from, T* to) {
    if (from != nullptr) std::memcpy(to, from + at_, count_ * sizeof(T));
  }
  template <class T>
  void put(const T* from, T* to) {
    if (to != nullptr) std::memcpy(to + at_, from, count_ * sizeof(T));
  }

  Streams<Memory> from_;
  std::size_t at_, count_;
  typename Streams<Memory>::Kept parameter_[Memory::kLanes] = {}, states_[3][Memory::kLanes] = {};
  typename Streams<Memory>::Given gradient_[Memory::kLanes] = {}, copy_[Memory::kLanes] = {};
};

/// Calls block(streams, at) for every vector of a piece. Elements of the last vector beyond the
/// piece are zero. A block must be inlined (HCCL_BLOCK) and hold its rule by value, so that
/// coefficients stay in registers: a store of a vector could change anything behind a reference.
template <class Memory, class Block>
HWY_INLINE void for_each_vector(const Piece& piece, Block block) {
  const Streams<Memory> streams(piece);
  std::size_t at = 0;
  for (; at + Memory::kLanes <= piece.count; at += Memory::kLanes) {
    block(streams, at);
  }
  if (at < piece.count) {
    Tail<Memory> tail(streams, at, piece.count - at);
    block(tail.streams(), 0);
    tail.put_back();
  }
}

template <class Memory>
using Number = typename Memory::Number;

template <class Memory, int kStates>
HWY_INLINE void load_states(const Streams<Memory>& streams, std::size_t at,
                            Vec<Number<Memory>>* s) {
  HWY_UNROLL(3)
  for (int k = 0; k < kStates; ++k) {
    s[k] = streams.states[k] == nullptr ? all<Number<Memory>>(0)
                                        : Memory::Kept::load(streams.states[k] + at);
  }
}
template <class Memory, int kStates>
HWY_INLINE void store_states(const Vec<Number<Memory>>* s, const Streams<Memory>& streams,
                             std::size_t at) {
  HWY_UNROLL(3)
  for (int k = 0; k < kStates; ++k) {
    if (streams.states[k] != nullptr) Memory::Kept::store(s[k], streams.states[k] + at);
  }
}

/// The work that all rules share: gradient() comes before the rule, finish() after it.
template <class Memory>
struct Ends {
  using V = Vec<Number<Memory>>;
  explicit Ends(const HcclOptimNumbers& n)
      : factor(all<Number<Memory>>(n.factor)), zeroes((n.flags & HCCL_OPTIM_ZERO_GRADIENT) != 0) {}
  HWY_INLINE V gradient(const Streams<Memory>& streams, std::size_t at) const {
    return hn::Mul(Memory::Given::load(streams.gradient + at), factor);
  }
  HWY_INLINE void finish(V p, const Streams<Memory>& streams, std::size_t at) const {
    Memory::Kept::store(p, streams.parameter + at);
    if (streams.copy != nullptr) Memory::Given::store(p, streams.copy + at);
    if (zeroes) Memory::Given::store(all<Number<Memory>>(0), streams.gradient + at);
  }
  V factor;
  bool zeroes;
};

template <template <class> class Rule, class Memory>
void only_pass(const Batch& batch) {
  using R = Rule<Number<Memory>>;
  const Ends<Memory> ends(*batch.numbers);
  const R rule(*batch.numbers, batch.pieces[0].states);
  for (std::size_t i = 0; i < batch.number; ++i) {
    for_each_vector<Memory>(batch.pieces[i],
                            [=](const Streams<Memory>& streams, std::size_t at) HCCL_BLOCK {
                              Vec<Number<Memory>> s[R::kStates];
                              auto p = Memory::Kept::load(streams.parameter + at);
                              load_states<Memory, R::kStates>(streams, at, s);
                              rule(p, ends.gradient(streams, at), s);
                              store_states<Memory, R::kStates>(s, streams, at);
                              ends.finish(p, streams, at);
                            });
  }
}

/// A sum of products, always in double.
template <class T>
struct Sum {
  static constexpr bool kWidens = sizeof(T) == 4;
  Vec<double> low, high;

  HWY_INLINE Sum() : low(all<double>(0)), high(all<double>(0)) {}
  HWY_INLINE void add(Vec<T> a, Vec<T> b) {
    const Tag<double> d;
    if constexpr (kWidens) {
      const hn::Rebind<float, Tag<double>> half;
#if HWY_TARGET == HWY_SCALAR
      low = hn::MulAdd(hn::PromoteTo(d, a), hn::PromoteTo(d, b), low);
      (void)half;
#else
      low = hn::MulAdd(hn::PromoteTo(d, hn::LowerHalf(half, a)),
                       hn::PromoteTo(d, hn::LowerHalf(half, b)), low);
      high = hn::MulAdd(hn::PromoteTo(d, hn::UpperHalf(half, a)),
                        hn::PromoteTo(d, hn::UpperHalf(half, b)), high);
#endif
    } else {
      low = hn::MulAdd(a, b, low);
      (void)d;
    }
  }
  HWY_INLINE double value() const {
    const Tag<double> d;
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  }
};

template <template <class> class Rule, class Memory>
void first_pass(const Batch& batch) {
  using R = Rule<Number<Memory>>;
  const Ends<Memory> ends(*batch.numbers);
  const R rule(*batch.numbers);
  for (std::size_t i = 0; i < batch.number; ++i) {
    Sum<Number<Memory>> sums[R::kSums];
    for_each_vector<Memory>(
        batch.pieces[i], [=, &sums](const Streams<Memory>& streams, std::size_t at) HCCL_BLOCK {
          Vec<Number<Memory>> s[R::kStates];
          load_states<Memory, R::kStates>(streams, at, s);
          rule.first(Memory::Kept::load(streams.parameter + at), ends.gradient(streams, at), s,
                     [&](int k, auto a, auto b) HCCL_BLOCK { sums[k].add(a, b); });
          store_states<Memory, R::kStates>(s, streams, at);
        });
    for (int k = 0; k < R::kSums; ++k) batch.pieces[i].sums->values[k] = sums[k].value();
  }
}

template <template <class> class Rule, class Memory>
void second_pass(const Batch& batch) {
  using R = Rule<Number<Memory>>;
  const Ends<Memory> ends(*batch.numbers);
  const R rule(*batch.numbers);
  for (std::size_t i = 0; i < batch.number; ++i) {
    const double* const values = batch.pieces[i].sums->values;
    for_each_vector<Memory>(batch.pieces[i],
                            [=](const Streams<Memory>& streams, std::size_t at) HCCL_BLOCK {
                              Vec<Number<Memory>> s[R::kStates];
                              auto p = Memory::Kept::load(streams.parameter + at);
                              load_states<Memory, R::kStates>(streams, at, s);
                              rule.second(p, ends.gradient(streams, at), s, values);
                              ends.finish(p, streams, at);
                            });
  }
}

template <class Memory>
void norm_pieces(const Batch& batch) {
  using T = Number<Memory>;
  for (std::size_t i = 0; i < batch.number; ++i) {
    Sum<T> squares;
    auto largest = all<T>(0);
    for_each_vector<Memory>(batch.pieces[i],
                            [&](const Streams<Memory>& streams, std::size_t at) HCCL_BLOCK {
                              const auto g = Memory::Given::load(streams.gradient + at);
                              squares.add(g, g);
                              largest = hn::Max(largest, hn::Abs(g));
                            });
    batch.pieces[i].sums->values[0] = squares.value();
    batch.pieces[i].sums->values[1] = hn::GetLane(hn::MaxOfLanes(Tag<T>(), largest));
  }
}

template <class Memory>
void scale_pieces(const Batch& batch, double factor) {
  const auto by = all<Number<Memory>>(factor);
  for (std::size_t i = 0; i < batch.number; ++i) {
    for_each_vector<Memory>(
        batch.pieces[i], [by](const Streams<Memory>& streams, std::size_t at) HCCL_BLOCK {
          Memory::Given::store(hn::Mul(Memory::Given::load(streams.gradient + at), by),
                               streams.gradient + at);
        });
  }
}

/// Calls function(Memory) with the memory of a type.
template <class Function>
HWY_INLINE void with_memory(HcclOptimType type, const Function& function) {
  using Fp32 = Plain<float>;
  using Fp64 = Plain<double>;
  switch (type) {
    case HCCL_OPTIM_FP32:
      return function(Memory<Fp32, Fp32>());
    case HCCL_OPTIM_FP64:
      return function(Memory<Fp64, Fp64>());
    case HCCL_OPTIM_BF16:
      return function(Memory<Bf16, Bf16>());
    case HCCL_OPTIM_FP16:
      return function(Memory<Fp16, Fp16>());
    case HCCL_OPTIM_BF16_MASTER:
      return function(Memory<Bf16, Fp32>());
    case HCCL_OPTIM_FP16_MASTER:
      return function(Memory<Fp16, Fp32>());
  }
}

template <template <class> class Rule>
void step_once(const Batch& batch) {
  with_memory(batch.type, [&](auto memory) { only_pass<Rule, decltype(memory)>(batch); });
}
template <template <class> class Rule>
void step_twice(Pass pass, const Batch& batch) {
  with_memory(batch.type, [&](auto memory) {
    if (pass == Pass::kFirst) {
      first_pass<Rule, decltype(memory)>(batch);
    } else {
      second_pass<Rule, decltype(memory)>(batch);
    }
  });
}

void step_vectors(HcclOptimRule rule, Pass pass, const Batch& batch) {
  switch (rule) {
    case HCCL_OPTIM_SGD:
      return step_once<Sgd>(batch);
    case HCCL_OPTIM_ADAM:
      return step_once<Adam>(batch);
    case HCCL_OPTIM_ADAMP:
      return step_twice<AdamP>(pass, batch);
    case HCCL_OPTIM_ADADELTA:
      return step_once<Adadelta>(batch);
    case HCCL_OPTIM_LAMB:
      return step_twice<Lamb>(pass, batch);
    case HCCL_OPTIM_RMSPROP:
      return step_once<RmsProp>(batch);
    case HCCL_OPTIM_RMSPROP_TF:
      return step_once<RmsPropTf>(batch);
    case HCCL_OPTIM_BERT_ADAM:
      return step_once<BertAdam>(batch);
  }
}

void norms_vectors(const Batch& batch) {
  with_memory(batch.type, [&](auto memory) { norm_pieces<decltype(memory)>(batch); });
}

void scale_vectors(const Batch& batch, double factor) {
  with_memory(batch.type, [&](auto memory) { scale_pieces<decltype(memory)>(batch, factor); });
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace hccl::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl::optim {

HWY_EXPORT(step_vectors);
HWY_EXPORT(norms_vectors);
HWY_EXPORT(scale_vectors);
HWY_EXPORT(target_name);

void step(HcclOptimRule rule, Pass pass, const Batch& batch) {
  HWY_DYNAMIC_DISPATCH(step_vectors)(rule, pass, batch);
}
void norms(const Batch& batch) { HWY_DYNAMIC_DISPATCH(norms_vectors)(batch); }
void scale(const Batch& batch, double factor) {
  HWY_DYNAMIC_DISPATCH(scale_vectors)(batch, factor);
}
const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace hccl::optim
#endif  // HWY_ONCE
