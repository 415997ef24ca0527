// Learns from measurements how the time of an allreduce depends on its size: a line (start +
// per_byte * n), and a table for sizes that the line does not fit. The first samples are the
// communicator's costs, which engine/agreement.h reads; later samples are measured in training.
// Does no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "hccl/base/status.h"
#include "split/planner.h"

namespace hccl::split {

/// The time of one allreduce, without the wait for late ranks.
struct CostSample {
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool operator==(const CostSample&) const = default;
};

/// Used by one thread at a time.
class CostModel {
 public:
  /// Makes a model of these samples, which may contain outliers. Fails with kPara if there are no
  /// samples, or if a time is not finite and above 0; the error text names the sample.
  static Result<CostModel> create(std::span<const CostSample> samples);

  /// Learns from one more sample. The model uses the median of the last samples of about the same
  /// size. Fails with kPara as create() does.
  Status add(const CostSample& sample);

  /// Whether all samples have about the same size. Such samples do not separate the start from the
  /// cost per byte, and the line has no start.
  bool has_one_size() const { return points().size() == 1; }
  /// The line; never negative.
  const AffineCost& affine() const { return line_; }
  /// Returns a table of times that never fall as the size grows. Near a measured size the table has
  /// the measured time, elsewhere the time of the line. The first samples of a size count until
  /// training measures that size. Until then they are scaled by the ratio at the nearest size that
  /// training has measured.
  TableCost table() const { return table_of(points(), line_); }
  /// Returns the mean distance of the measured times from the line, as a fraction of those times.
  double misfit() const;
  /// Whether the line fits well enough for planning (misfit at most 4 %).
  bool is_affine() const { return misfit() <= kGoodFit; }
  /// The line if it fits, else the table.
  Cost cost() const { return is_affine() ? Cost(line_) : Cost(table()); }

  static constexpr double kGoodFit = 0.04;

 private:
  // The mean of the measured sizes between two powers of two, and the time of that mean size.
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };
  using Points = std::map<int, Point>;                    // by the power of two
  using Samples = std::map<int, std::deque<CostSample>>;  // the last samples, by the power of two

  static Points points_of(const Samples& samples, const AffineCost& line);
  static AffineCost line_through(const Points& points);
  static TableCost table_of(const Points& points, const AffineCost& line);
  Points points() const;
  void fit();

  AffineCost line_{0, 1e-9};
  Samples first_;
  AffineCost first_line_;
  Samples learnt_;  // samples measured in training
};

}  // namespace hccl::split
