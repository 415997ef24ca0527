// The input of the kernels: parts of spans, and where their sums are stored.
#pragma once

#include <cstddef>

#include "hccl/hccl_optim.h"

namespace hccl::optim {

/// First the sums over a piece that the first pass of Lamb or AdamP computes. Then optim.cc
/// replaces the sums by the values that the second pass needs.
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

/// Pieces of spans with the same numbers and type, and with the same states absent: a rule checks
/// only the first piece for absent states.
struct Batch {
  const HcclOptimNumbers* numbers;
  HcclOptimType type;
  const Piece* pieces;
  std::size_t number;
};

enum class Pass { kOnly, kFirst, kSecond };

/// Runs the step of a rule that has one pass, or one pass of a rule that has two.
void step(HcclOptimRule rule, Pass pass, const Batch& batch);
/// Sets values[0] of each piece's sums to the sum of the squares of the gradients, and values[1] to
/// their largest magnitude.
void norms(const Batch& batch);
/// gradient *= factor
void scale(const Batch& batch, double factor);
const char* instruction_set();

}  // namespace hccl::optim
