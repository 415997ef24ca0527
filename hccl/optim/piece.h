// What the kernels take: parts of spans, and where their sums go.
#pragma once

#include <cstddef>

#include "hccl/hccl_optim.h"

namespace hccl::optim {

/// What the first pass of Lamb and AdamP finds out about a piece, and what the second needs.
struct Sums {
  double values[4];
};

/// Consecutive elements of one span; at most kPiece of them, or one row.
struct Piece {
  void* parameter;
  void* gradient;
  void* states[3];
  void* copy;
  std::size_t count;
  Sums* sums;
};
inline constexpr std::size_t kPiece = 4096;

/// Pieces of spans that have numbers and type in common.
struct Batch {
  const HcclOptimNumbers* numbers;
  HcclOptimType type;
  const Piece* pieces;
  std::size_t number;
};

enum class Pass { kOnly, kFirst, kSecond };

/// The step of the rules that read each element once, or one of the two passes of the others.
void step(HcclOptimRule rule, Pass pass, const Batch& batch);
/// Adds to values[0] the squares of the gradients; values[1] becomes the largest magnitude.
void norms(const Batch& batch);
/// gradient *= factor
void scale(const Batch& batch, double factor);
const char* instruction_set();

}  // namespace hccl::optim
