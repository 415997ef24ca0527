// The exact planner: cuts the gradients into segments so that the last allreduce ends as early as
// possible. Pure functions: times in seconds from the common start of the iteration, sizes in
// bytes, no I/O, no state.
//
// The model: gradients become ready at known times, in a fixed order. The wire carries one segment
// at a time. A segment starts when its last gradient is ready and the segment before it has ended.
// It takes cost(bytes):
//   end[k] = max(end[k-1], ready time of segment k) + cost(bytes of segment k)
// The planner minimises the end of the last segment. README.md explains the algorithms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "hccl/base/status.h"
#include "split/strategy.h"

namespace hccl::split {

/// An allreduce of n bytes takes start + n * per_byte seconds.
struct AffineCost {
  double start = 0;
  double per_byte = 0;

  double operator()(std::uint64_t bytes) const {
    return start + per_byte * static_cast<double>(bytes);
  }
};

/// Measured times of an allreduce by size, with straight lines between the points. Smaller sizes
/// have the time of the first point. For larger sizes the last line is extended; with only one
/// point, the time is proportional to the size.
class TableCost {
 public:
  struct Point {
    std::uint64_t bytes;
    double seconds;
  };
  /// Makes a table. Fails with kPara, and names the point, if there are no points, if bytes do not
  /// ascend strictly from at least 1, or if times are negative, not finite, or fall as the size
  /// grows.
  static Result<TableCost> create(std::vector<Point> points);

  double operator()(std::uint64_t bytes) const;
  const std::vector<Point>& points() const { return points_; }

 private:
  explicit TableCost(std::vector<Point> points) : points_(std::move(points)) {}
  std::vector<Point> points_;
};

using Cost = std::variant<AffineCost, TableCost>;

/// The speeds of compute and communication while both run. Each is a fraction, above 0 and at most
/// 1, of the speed that compute or communication has alone.
struct Contention {
  double compute = 1;
  double communication = 1;
  bool none() const { return compute == 1 && communication == 1; }
  /// If false, running compute and communication at the same time saves nothing over running one
  /// after the other. The plan then has one segment, which is optimal if the cost is affine.
  bool overlap_pays() const { return compute + communication > 1; }
  bool operator==(const Contention&) const = default;
};

/// Measured lengths, as medians in seconds: compute in iterations without and with overlap, and the
/// segments that overlap.
struct ApartAndBeside {
  double compute_alone = 0;
  double compute_beside = 0;
  double busy = 0;  ///< how long segments ran beside compute
  double work = 0;  ///< how long the same communication takes alone
};

/// Returns nothing if `busy` is less than a twentieth of compute, which is too short to measure
/// contention.
std::optional<Contention> contention_of(const ApartAndBeside& measured);

/// The input of the planner. The spans are only read during the call.
struct Problem {
  std::span<const std::uint64_t> bytes;  ///< of each gradient, in the order of their reduction
  std::span<const double> ready;         ///< ready times on the slowest rank; not negative
  std::uint32_t max_segments = kDocumentedSegments;
  /// Of all plans that end within (1 + slack) * the best end, the planner takes the one with the
  /// fewest segments: fewer segments use less CPU.
  double slack = 0.005;
  /// With contention, `ready` has the times at which gradients would be ready without
  /// communication. Compute ends when the last gradient is ready.
  Contention contention{};
};

struct Plan {
  Segments last_indices;  ///< last gradient of each segment, as in strategy.h
  double end = 0;         ///< when the last segment of this plan ends
  double best_end =
      0;  ///< the earliest possible end with max_segments; end <= (1 + slack) * best_end
  /// No plan with any number of segments ends before this time (except for rounding).
  double lower_bound = 0;
  /// Another cut can end earlier by at most this fraction of lower_bound. 0 means that no cut ends
  /// earlier.
  double gap() const { return lower_bound > 0 ? std::max(0.0, end / lower_bound - 1) : 0; }
};

/// Computes the exact optimum.
///   cost                       time                               plan
///   a line                     O(max_segments * gradients)        exact
///   a line, with contention    O(max_segments * gradients^2)      exact
///   a table                    O(max_segments * gradients^2)      exact; the lower bound holds for
///                                                                 plans of at most max_segments
///   a table, with contention   O(max_segments * gradients^2)      good, not proven: `best_end` is
///                                                                 the end of the plan
/// Fails with kPara if there are no gradients, if the lists differ in length, if a ready time or a
/// cost is negative or not finite (the error text names it), if contention is no fraction, or if no
/// segments are allowed.
Result<Plan> plan_segments(const Problem& problem, const Cost& cost);

/// The model's prediction for a plan, in seconds from the start of the iteration.
struct Prediction {
  struct Times {
    double start = 0;
    double end = 0;
  };
  std::vector<Times> segments;
  std::vector<double> ready;  ///< of each gradient, slowed down by contention
  double compute_end = 0;     ///< when the last gradient is ready
  double end = 0;             ///< when the last segment ends
};

/// Ignores max_segments and slack. Fails with kPara as plan_segments() and segments_by_index() do.
Result<Prediction> predict(const Problem& problem, std::span<const std::uint32_t> last_indices,
                           const Cost& cost);

}  // namespace hccl::split
