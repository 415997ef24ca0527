// What many noisy measurements say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hccl::split {

/// The upper of the two middle ones, if they are even in number; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace hccl::split
