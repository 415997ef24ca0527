// What an allreduce costs by its size, learnt from measurements: a line (start + per_byte * n) and
// a table of the sizes where the line does not fit. Begins with the communicator's costs, goes on
// with the times of training. Pure: agreement.h gets the costs.
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

  /// Learns from one more: recursive least squares of the relative error, in which old samples
  /// fade, and one that is further off than 3 times the usual is pulled in to that. kPara as above.
  /// `runs`: the sample is the median of so many; of 3 or more it is taken as it is.
  Status add(const CostSample& sample, std::size_t runs = 1);

  /// The line; never negative.
  const AffineCost& affine() const { return line_; }
  /// Times by size that never fall: near each size that was measured what was measured there,
  /// elsewhere the line. What the first samples say of a size counts until it is measured again,
  /// stretched by as much as the nearest size that was.
  TableCost table() const;
  /// How far the sizes that were measured are from the line, on average, as a fraction of their
  /// times.
  double misfit() const;
  /// The line fits well enough to be planned with (misfit at most 4 %).
  bool is_affine() const { return misfit() <= kGoodFit; }
  std::size_t samples() const { return samples_; }
  /// Whether a size of the same class (between two powers of two) has been measured since the first
  /// samples.
  bool has_learnt(std::uint64_t bytes) const;

  static constexpr double kGoodFit = 0.04;

 private:
  // What was measured of sizes within a factor of two of each other: weighted means, in which old
  // samples fade.
  struct SizeClass {
    double weight = 0;
    double bytes = 0;
    double seconds = 0;
  };
  // Least squares of rows (1, bytes)/time: sums of products, so that samples are added and fade.
  struct Normal {
    double xx[3] = {0, 0, 0};  // symmetric: [0][0], [0][1], [1][1]
    double xy[2] = {0, 0};
    void add(double bytes, double reference, double seconds, double weight);
    void fade(double factor);
    /// As if all times had been so many times as long.
    void stretch(double factor);
    void add(const Normal& other);
  };

  using Classes = std::map<int, SizeClass>;

  CostModel() = default;
  static AffineCost solve(const Normal& sums);
  static TableCost table_of(const Classes& classes, const AffineCost& line);
  double usual_error() const;
  Classes known() const;

  AffineCost line_;
  Normal sums_;  // of the samples since the first ones
  // The first samples stay, with the weight of a few: they hold what no new sample says. Their
  // level follows that of the new ones, so that they only tell the shape.
  Normal prior_;
  AffineCost prior_line_;
  double level_ = 1;
  double level_weight_ = 1;
  std::deque<double> errors_;  // relative, of the last samples
  // Of the first samples, and of those since.
  Classes probed_;
  Classes learnt_;
  std::size_t samples_ = 0;
};

}  // namespace hccl::split
