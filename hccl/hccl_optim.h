/* Optimizer steps over tables of spans; hccl.torch.optim uses them. The functions are in
 * libhccl_optim.so, which depends on no other library and no framework. Valid C99 and C++11.
 *
 * A span describes one parameter: the addresses of the parameter, its gradient and its states. One
 * call runs the step for all spans of a table, in equal shares of bytes, on threads that the caller
 * provides. Results depend neither on the number of threads nor on the position of an element.
 *
 * Ownership: the library keeps no pointer after a call. Errors: the caller must check sizes and
 * addresses; the library does not. */
#ifndef HCCL_OPTIM_H_
#define HCCL_OPTIM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The rules; hccl/optim/rules-inl.h has the formulas. The brackets list the states in order; a
 * state in parentheses may be null. */
typedef enum {
  HCCL_OPTIM_SGD = 0,        /* [(momentum)] */
  HCCL_OPTIM_ADAM = 1,       /* [mean, square, (largest square)] also AdamW */
  HCCL_OPTIM_ADAMP = 2,      /* [mean, square] */
  HCCL_OPTIM_ADADELTA = 3,   /* [square, delta] */
  HCCL_OPTIM_LAMB = 4,       /* [mean, square] */
  HCCL_OPTIM_RMSPROP = 5,    /* [square, (momentum), (mean)] */
  HCCL_OPTIM_RMSPROP_TF = 6, /* [square, (momentum), (mean)] */
  HCCL_OPTIM_BERT_ADAM = 7   /* [mean, square] */
} HcclOptimRule;

/** The types of a span's elements. 16-bit elements are computed in fp32 and rounded once. */
typedef enum {
  HCCL_OPTIM_FP32 = 0,
  HCCL_OPTIM_FP64 = 1,
  HCCL_OPTIM_BF16 = 2,
  HCCL_OPTIM_FP16 = 3,
  HCCL_OPTIM_BF16_MASTER = 4, /* gradient and copy bf16; parameter and states fp32 */
  HCCL_OPTIM_FP16_MASTER = 5  /* gradient and copy fp16; parameter and states fp32 */
} HcclOptimType;

enum {
  HCCL_OPTIM_NESTEROV = 1,
  HCCL_OPTIM_DECOUPLED = 2,      /* weight decay acts on the parameter, not on the gradient */
  HCCL_OPTIM_LR_IN_MOMENTUM = 4, /* RMSpropTF */
  HCCL_OPTIM_NO_TRUST = 8,       /* Lamb without the ratio of norms */
  HCCL_OPTIM_ZERO_GRADIENT = 16  /* the gradient is 0 afterwards */
};

/** The numbers of a step. The formula of a rule shows which numbers the rule uses. */
typedef struct {
  double lr;
  double weight_decay;
  double eps;
  double beta1;
  double beta2; /* also the decay of the squares of Adadelta and RMSprop */
  double momentum;
  double dampening;
  double delta;    /* AdamP */
  double wd_ratio; /* AdamP */
  double step;     /* counted from 1 */
  double factor;   /* multiplies the gradient first, to unscale, clip or maximize (-1) */
  uint32_t flags;
} HcclOptimNumbers;

typedef struct {
  void* parameter;
  void* gradient;
  void* states[3];
  void* copy; /* 16-bit copy of the parameter, for the types with MASTER; otherwise null */
  uint64_t count;
  uint64_t rows; /* AdamP: number of equal rows to project, 0: no projection. Other rules: 0 */
  const HcclOptimNumbers* numbers;
  HcclOptimType type;
} HcclOptimSpan;

/** Does one share of the work of a step. */
typedef void (*HcclOptimBody)(void* work, uint64_t share);
/** Must run body(work, share) for every share below `shares`, on any threads, and return when all
 * shares are done. */
typedef void (*HcclOptimRun)(uint64_t shares, HcclOptimBody body, void* work);

typedef struct {
  HcclOptimRun run; /* null: the caller's thread runs all shares */
  uint64_t number;  /* number of threads; small tables use fewer */
} HcclOptimThreads;

/** Runs one step of all spans in one parallel region; Lamb and AdamP take two regions. */
void HcclOptimStep(HcclOptimRule rule, const HcclOptimSpan* spans, uint64_t number,
                   const HcclOptimThreads* threads);

/** The sum of the squares of all gradients' elements, in double, and the largest magnitude of an
 * element. A NaN makes the sum NaN; an infinity makes `largest` infinite. */
typedef struct {
  double squares;
  double largest;
} HcclOptimNorm;
void HcclOptimNorms(const HcclOptimSpan* spans, uint64_t number, const HcclOptimThreads* threads,
                    HcclOptimNorm* norm);

/** Multiplies all gradients by a factor. */
void HcclOptimScale(const HcclOptimSpan* spans, uint64_t number, double factor,
                    const HcclOptimThreads* threads);

/** The instruction set in use: "AVX3", "AVX2", ... */
const char* HcclOptimInstructionSet(void);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_OPTIM_H_ */
