#include "matrix.h"

#include <algorithm>

namespace examples {
namespace {

// A tile of kRows x kColumns results stays in the first-level cache while the factors stream by.
// kColumns is large enough that the compiler keeps the loop over columns and vectorises it. A
// shorter loop would be unrolled first and then not vectorised.
constexpr size_t kRows = 4;
constexpr size_t kColumns = 32;

void multiply_tile(const float* __restrict a, const float* __restrict b, float* __restrict c,
                   size_t inner, size_t columns) {
  float sum[kRows][kColumns] = {};
  for (size_t k = 0; k < inner; ++k) {
    for (size_t i = 0; i < kRows; ++i) {
      const float factor = a[i * inner + k];
      for (size_t j = 0; j < kColumns; ++j) sum[i][j] += factor * b[k * columns + j];
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kColumns; ++j) {
      c[i * columns + j] = sum[i][j];
    }
  }
}

// Computes the results at the right and lower edges that fill no tile, one by one.
void multiply_edge(const float* a, const float* b, float* c, size_t rows, size_t inner,
                   size_t columns, size_t width) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < width; ++j) {
      float sum = 0;
      for (size_t k = 0; k < inner; ++k) sum += a[i * inner + k] * b[k * columns + j];
      c[i * columns + j] = sum;
    }
  }
}

}  // namespace

void multiply(const float* a, const float* b, float* c, size_t rows, size_t inner, size_t columns) {
  const size_t full_rows = rows - rows % kRows;
  const size_t full_columns = columns - columns % kColumns;
  // The outer loop is over columns, so that a strip of b (inner x kColumns) stays in a cache.
  for (size_t j = 0; j < full_columns; j += kColumns) {
    for (size_t i = 0; i < full_rows; i += kRows) {
      multiply_tile(a + i * inner, b + j, c + i * columns + j, inner, columns);
    }
  }
  multiply_edge(a, b + full_columns, c + full_columns, full_rows, inner, columns,
                columns - full_columns);
  multiply_edge(a + full_rows * inner, b, c + full_rows * columns, rows - full_rows, inner, columns,
                columns);
}

void transpose(const float* in, float* out, size_t rows, size_t columns) {
  constexpr size_t kBlock = 16;  // one cache line of floats
  for (size_t r0 = 0; r0 < rows; r0 += kBlock) {
    for (size_t c0 = 0; c0 < columns; c0 += kBlock) {
      for (size_t r = r0; r < std::min(r0 + kBlock, rows); ++r) {
        for (size_t c = c0; c < std::min(c0 + kBlock, columns); ++c) {
          out[c * rows + r] = in[r * columns + c];
        }
      }
    }
  }
}

}  // namespace examples
