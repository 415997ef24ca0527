// What an allreduce costs by its size, learnt from measurements: a line (start + per_byte * n) and
// a table of the sizes where the line does not fit. Begins with the communicator's costs, goes on
// with the times of training. Pure: engine/agreement.h gets the costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "split/planner.h"

namespace hccl::split {

/// What one allreduce took, without waiting for a rank that came late.
struct CostSample {
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool operator==(const CostSample&) const = default;
};

/// Used by one thread at a time.
class CostModel {
 public:
  /// Begins with these samples, outliers among them allowed. kPara, naming the sample: there is
  /// none, or a time that is not above 0 or not finite.
  static Result<CostModel> create(std::span<const CostSample> samples);

  /// Learns from one more: the median of the last samples of about its size counts. kPara as above.
  Status add(const CostSample& sample);

  /// The line; never negative.
  const AffineCost& affine() const { return line_; }
  /// Times by size that never fall: near each size that was measured what was measured there,
  /// elsewhere the line. What the first samples say of a size counts until it is measured again,
  /// stretched by as much as the nearest size that was.
  TableCost table() const { return table_of(points(), line_); }
  /// How far the sizes that were measured are from the line, on average, as a fraction of their
  /// times.
  double misfit() const;
  /// The line fits well enough to be planned with (misfit at most 4 %).
  bool is_affine() const { return misfit() <= kGoodFit; }
  /// The line if it does, else the table.
  Cost cost() const { return is_affine() ? Cost(line_) : Cost(table()); }

  static constexpr double kGoodFit = 0.04;

 private:
  // What sizes between two powers of two took: their mean, and what that takes.
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };
  using Points = std::map<int, Point>;                    // by the power of two
  using Samples = std::map<int, std::deque<CostSample>>;  // the last ones of each

  static Points points_of(const Samples& samples, const AffineCost& line);
  static AffineCost line_through(const Points& points);
  static TableCost table_of(const Points& points, const AffineCost& line);
  Points points() const;
  void fit();

  AffineCost line_{0, 1e-9};
  Samples first_;
  AffineCost first_line_;
  Samples learnt_;  // since
};

}  // namespace hccl::split
