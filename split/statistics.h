// Statistics of noisy measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hccl::split {

/// Returns the median; of an even number of values, the upper of the two middle ones; 0 without
/// values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the median of get(item) over some items.
template <class Item, class Get>
double median_of(const std::vector<const Item*>& items, const Get& get) {
  std::vector<double> values;
  values.reserve(items.size());
  for (const Item* each : items) values.push_back(get(*each));
  return median(std::move(values));
}

inline double seconds(std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

}  // namespace hccl::split
