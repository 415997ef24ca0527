// Loops with the memory traffic of an optimizer's step and one multiply-add for each stream. No
// step can be faster than such a loop. optim.py builds and calls them.

// Reads g; reads and writes p and m.
void two_streams(long n, const float* restrict g, float* restrict p, float* restrict m) {
#pragma omp parallel for simd schedule(static)
  for (long i = 0; i < n; ++i) {
    m[i] = m[i] * 0.9f + g[i];
    p[i] = p[i] - 1e-9f * m[i];
  }
}

// Reads g; reads and writes p, m and v.
void three_streams(long n, const float* restrict g, float* restrict p, float* restrict m,
                   float* restrict v) {
#pragma omp parallel for simd schedule(static)
  for (long i = 0; i < n; ++i) {
    m[i] = m[i] * 0.9f + g[i];
    v[i] = v[i] * 0.99f + g[i];
    p[i] = p[i] - 1e-9f * m[i];
  }
}
