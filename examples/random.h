// A small random number generator. It gives the same numbers on every machine, with every standard
// library, and in both languages of the examples (the distributions of <random> differ between
// libraries).
#pragma once

#include <cstdint>

namespace examples {

/// Scrambles 64 bits so that neighbouring inputs give unrelated outputs (the finaliser of
/// splitmix64).
constexpr uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Returns number `index` of the random sequence `seed`, computed without state.
constexpr uint64_t random_bits(uint64_t seed, uint64_t index) {
  return scramble(scramble(seed) + (index + 1) * 0x9E3779B97F4A7C15u);
}

/// Returns the same number as a float, uniform in [-1, 1).
constexpr float random_float(uint64_t seed, uint64_t index) {
  constexpr int kFraction = 23;  // every such value is exact in a float
  const auto bits = static_cast<int32_t>(random_bits(seed, index) >> (64 - kFraction - 1));
  return static_cast<float>(bits - (1 << kFraction)) / (1 << kFraction);
}

}  // namespace examples
