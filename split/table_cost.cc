// A cost model that is a table of measured sizes.
#include <algorithm>
#include <string>

#include "split/planner_model.h"

namespace hccl::split {

Result<TableCost> TableCost::create(std::vector<Point> points) {
  if (points.empty()) return Status(Code::kPara, "cost table: no points");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point before = i == 0 ? Point{0, 0} : points[i - 1];
    const std::string name = "cost table: point " + std::to_string(i) + " (" +
                             std::to_string(points[i].bytes) + " bytes, " +
                             std::to_string(points[i].seconds) + " s) ";
    if (points[i].bytes <= before.bytes)
      return Status(Code::kPara,
                    name + "must have more bytes than the point before it (more than 0)");
    if (!is_time(points[i].seconds) || points[i].seconds < before.seconds)
      return Status(Code::kPara,
                    name + "must take at least as long as the point before it (at least 0 s)");
  }
  return TableCost(std::move(points));
}

double TableCost::operator()(std::uint64_t bytes) const {
  const Point& first = points_.front();
  if (bytes <= first.bytes) return first.seconds;
  const auto n = static_cast<double>(bytes);
  if (points_.size() == 1) return first.seconds / static_cast<double>(first.bytes) * n;
  auto right =
      std::lower_bound(points_.begin(), points_.end(), bytes,
                       [](const Point& point, std::uint64_t b) { return point.bytes < b; });
  if (right == points_.end()) --right;
  const Point& left = *std::prev(right);
  const double slope =
      (right->seconds - left.seconds) / static_cast<double>(right->bytes - left.bytes);
  return left.seconds + slope * (n - static_cast<double>(left.bytes));
}

}  // namespace hccl::split
