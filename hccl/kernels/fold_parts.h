// The parts of fold() that are compiled for each instruction set. Each kind of elements has its own
// file, because a single file would take several times as long to compile as any other file of the
// tree.
#pragma once

#include "hccl/kernels/kernels.h"

namespace hccl::kernels {

struct Inputs {
  const std::byte* const* from;
  std::size_t number;  // at least one
  Store store;
  Finish finish;
};

// Each function chooses the instruction set at run time. `bytes` is the size of one input and of
// `out`.

/// Integers of 8 to 64 bits; not for bitwise reductions.
void fold_integers(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out);
/// Bitwise reductions, which do not depend on the type.
void fold_bits(ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out);
/// fp32 and fp64.
void fold_floats(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out);
/// fp16 and bf16.
void fold_halves(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out);
/// FP8-E4M3 and FP8-E5M2.
void fold_fp8(DataType type, ReduceOp op, const Inputs& in, std::size_t bytes, std::byte* out);

}  // namespace hccl::kernels
