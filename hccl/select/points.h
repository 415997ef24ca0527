// Times at rising sizes, with straight lines between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hccl::select {

inline constexpr std::size_t kMostPoints = 64;
inline constexpr std::uint64_t kMostNs = 3'600'000'000'000;  // an hour

/// Returns the time for `bytes`. Below the first point it is the time of that point. Beyond the
/// last point it lies on the line through the last two points. There must be at least one point.
template <class Point>
double time_at(const std::vector<Point>& points, double bytes, std::uint64_t Point::* ns) {
  const auto x = [](const Point& point) { return static_cast<double>(point.bytes); };
  const auto y = [&](const Point& point) { return static_cast<double>(point.*ns); };
  if (bytes <= x(points.front())) return y(points.front());
  if (points.size() == 1) {
    // With one point, latency and throughput cannot be told apart. The cautious guess is that there
    // is no latency, so time grows in proportion to bytes.
    return y(points.front()) * bytes / (x(points.front()) < 1 ? 1 : x(points.front()));
  }
  std::size_t above = 1;
  while (above + 1 < points.size() && x(points[above]) < bytes) ++above;
  const Point &low = points[above - 1], &high = points[above];
  return y(low) + (bytes - x(low)) / (x(high) - x(low)) * (y(high) - y(low));
}

/// The reason why points from outside are invalid; "" if they are valid. Each point must have a
/// time `first`; the times `others` may be 0.
template <class Point, class... Others>
std::string fault(const std::vector<Point>& points, std::uint64_t Point::* first,
                  Others... others) {
  if (points.empty() || points.size() > kMostPoints) return "1 to 64 sizes are expected";
  const Point* last = nullptr;
  for (const Point& point : points) {
    const auto too_long = [&](std::uint64_t Point::* ns) { return point.*ns > kMostNs; };
    const auto falls = [&](std::uint64_t Point::* ns) { return last && point.*ns < last->*ns; };
    if (point.bytes > std::uint64_t{1} << 40 || (last && point.bytes <= last->bytes)) {
      return "bytes must rise, up to 2^40";
    }
    if (point.*first == 0 || too_long(first) || (too_long(others) || ...)) {
      return "a time of 1 ns to an hour is expected";
    }
    if (falls(first) || (falls(others) || ...)) return "times must not fall";
    last = &point;
  }
  return "";
}

}  // namespace hccl::select
