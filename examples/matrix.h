// Matrix products in plain loops, cut into tiles that stay in registers. All matrices are
// row-major.
#pragma once

#include <cstddef>

namespace examples {

/// Computes c = a * b; a is rows x inner, b is inner x columns. c must not overlap a or b.
void multiply(const float* a, const float* b, float* c, size_t rows, size_t inner, size_t columns);

/// Writes `in` (rows x columns), transposed, to `out` (columns x rows). They must not overlap.
void transpose(const float* in, float* out, size_t rows, size_t columns);

}  // namespace examples
