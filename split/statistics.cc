#include "split/statistics.h"

#include <algorithm>
#include <cmath>

namespace hccl::split {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double error_of_median(std::vector<double> values) {
  if (values.size() < 2) return 0;
  if (values.size() < 3) return std::abs(values[0] - values[1]);
  const double middle = median(values);
  for (double& each : values) each = std::abs(each - middle);
  const double deviation = 1.4826 * median(values);  // as that of a normal distribution
  const auto n = static_cast<double>(values.size());
  return 1.2533 * deviation / std::sqrt(n - 1);
}

}  // namespace hccl::split
