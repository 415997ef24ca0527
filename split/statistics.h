// What many noisy measurements say.
#pragma once

#include <vector>

namespace hccl::split {

/// The upper of the two middle ones, if they are even in number; 0 of none.
double median(std::vector<double> values);

/// The standard error of the median of these values, from their median deviation, so that an
/// outlier does not count; of fewer than three, their range. 0 of one.
double error_of_median(std::vector<double> values);

}  // namespace hccl::split
