// The input of the kernels: parts of spans, and the place of their sums.
#pragma once

#include <cstddef>

#include "hccl/hccl_optim.h"

namespace hccl::optim {

/// Sums over a piece that the first pass of Lamb and AdamP computes, then the values made from them
/// that the second pass needs.
struct Sums {
  double values[4];
};

/// Consecutive elements of one span: at most kPiece of them, or one row.
struct Piece {
  void* parameter;
  void* gradient;
  void* states[3];
  void* copy;
  std::size_t count;
  Sums* sums;
};
inline constexpr std::size_t kPiece = 4096;

/// Pieces of spans with the same numbers and type.
struct Batch {
  const HcclOptimNumbers* numbers;
  HcclOptimType type;
  const Piece* pieces;
  std::size_t number;
};

enum class Pass { kOnly, kFirst, kSecond };

/// Runs the step of a rule that reads each element once, or one of the two passes of another rule.
void step(HcclOptimRule rule, Pass pass, const Batch& batch);
/// Adds the squares of the gradients to values[0] and raises values[1] to the largest magnitude.
void norms(const Batch& batch);
/// gradient *= factor
void scale(const Batch& batch, double factor);
const char* instruction_set();

}  // namespace hccl::optim
