#include "benchmarks/split/strategies.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace split_bench {

std::vector<std::uint32_t> ddp_buckets(std::span<const std::uint64_t> bytes,
                                       std::uint64_t first_cap, std::uint64_t cap) {
  std::vector<std::uint32_t> last_indices;
  std::uint64_t size = 0;
  for (std::uint32_t i = 0; i < bytes.size(); ++i) {
    size += bytes[i];
    if (size >= (last_indices.empty() ? first_cap : cap) || i + 1 == bytes.size()) {
      last_indices.push_back(i);
      size = 0;
    }
  }
  return last_indices;
}

std::vector<std::uint32_t> full_buckets(std::span<const std::uint64_t> bytes, std::uint64_t cap) {
  std::vector<std::uint32_t> last_indices;
  std::uint64_t size = 0;
  for (std::uint32_t i = 0; i < bytes.size(); ++i) {
    size += bytes[i];
    if (i + 1 == bytes.size() || size + bytes[i + 1] > cap) {
      last_indices.push_back(i);
      size = 0;
    }
  }
  return last_indices;
}

std::vector<std::uint32_t> horovod_cycles(std::span<const std::uint64_t> bytes,
                                          std::span<const double> ready,
                                          const std::function<double(std::uint64_t)>& cost,
                                          std::uint64_t cap, double cycle) {
  std::vector<std::uint32_t> last_indices;
  double now = 0;
  std::uint32_t i = 0;
  while (i < bytes.size()) {
    now = std::max(now, ready[i]);
    now = std::ceil(now / cycle) * cycle;
    // All gradients that are ready at this tick, in as many messages as needed.
    std::uint32_t end = i;
    while (end < bytes.size() && ready[end] <= now) ++end;
    while (i < end) {
      std::uint64_t size = bytes[i++];
      while (i < end && size + bytes[i] <= cap) size += bytes[i++];
      last_indices.push_back(i - 1);
      now += cost(size);
    }
  }
  return last_indices;
}

std::vector<std::uint32_t> one_each(std::size_t gradients) {
  std::vector<std::uint32_t> last_indices(gradients);
  std::iota(last_indices.begin(), last_indices.end(), 0u);
  return last_indices;
}

}  // namespace split_bench
