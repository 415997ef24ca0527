/* Optimizer steps over tables of spans: what hccl.torch.optim is made of. In libhccl_optim.so,
 * which needs no other library and knows no framework. Valid C99 and C++11.
 *
 * A span is one parameter: where it, its gradient and its states lie. One call steps all spans of a
 * table, in equal shares of bytes on the caller's threads. Results do not depend on the number of
 * threads, nor on where an element lies.
 *
 * Ownership: nothing is kept after a call. Errors: the caller checks; sizes and addresses are taken
 * as they are. */
#ifndef HCCL_OPTIM_H_
#define HCCL_OPTIM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The rules; hccl/optim/rules-inl.h has the formulas. In brackets: the states, in their order; one
 * in parentheses may be null. */
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

/** How a span's elements lie in memory. Of 16-bit types fp32 is computed, and rounded once. */
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

/** The numbers of a step. Which of them a rule uses is in its formula. */
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
  double step;     /* from 1 */
  double factor;   /* the gradient is multiplied by it first: unscale, clip, maximize (-1) */
  uint32_t flags;
} HcclOptimNumbers;

typedef struct {
  void* parameter;
  void* gradient;
  void* states[3];
  void* copy; /* of the parameter, in 16 bits, for the types with MASTER; else null */
  uint64_t count;
  uint64_t rows; /* AdamP: rows of equal length that are projected; 0: not projected. Else 0 */
  const HcclOptimNumbers* numbers;
  HcclOptimType type;
} HcclOptimSpan;

/** Runs body(work, share) for every share below `shares`, on any threads, and returns when all are
 * done. */
typedef void (*HcclOptimBody)(void* work, uint64_t share);
typedef void (*HcclOptimRun)(uint64_t shares, HcclOptimBody body, void* work);

typedef struct {
  HcclOptimRun run; /* null: the caller's thread */
  uint64_t number;  /* of threads; shares too small to be worth a thread are joined */
} HcclOptimThreads;

/** One step of all spans: one parallel region; Lamb and AdamP take two. */
void HcclOptimStep(HcclOptimRule rule, const HcclOptimSpan* spans, uint64_t number,
                   const HcclOptimThreads* threads);

/** Of all gradients: the sum of squares, in double, and the largest magnitude. A NaN makes the sum
 * NaN; an infinity makes `largest` infinite. */
typedef struct {
  double squares;
  double largest;
} HcclOptimNorm;
void HcclOptimNorms(const HcclOptimSpan* spans, uint64_t number, const HcclOptimThreads* threads,
                    HcclOptimNorm* norm);

/** Multiplies all gradients by a factor. */
void HcclOptimScale(const HcclOptimSpan* spans, uint64_t number, double factor,
                    const HcclOptimThreads* threads);

/** The instruction set that is used: "AVX3", "AVX2", ... */
const char* HcclOptimInstructionSet(void);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_OPTIM_H_ */
