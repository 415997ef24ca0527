// The parts that the planner's algorithms share: the problem in the form that their recurrences use
// (sums of bytes, ready times), and how one segment runs during compute. Only for planner*.cc and
// priority.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hccl/base/status.h"
#include "split/planner.h"

namespace hccl::split {

inline bool is_time(double value) { return std::isfinite(value) && value >= 0; }

/// The problem in the form the recurrences use.
struct Model {
  std::vector<std::uint64_t> sum;  // sum[e]: bytes of the first e gradients
  std::vector<double> ready;  // ready[e]: when the first e gradients are all ready; ready[0] = 0
  Contention contention;
  std::size_t size() const { return sum.size() - 1; }
};

/// Fails with kPara if bytes, times or contention are invalid; the error text gives the reason.
Result<Model> make_model(const Problem& problem);

Status check(const AffineCost& cost);
inline Status check(const TableCost&) { return {}; }  // create() has checked the table

/// A segment that runs during compute.
struct Run {
  double end = 0;
  double apart = 0;  ///< the time at which the segment and compute no longer run side by side
  double lost = 0;   ///< time that compute has lost to all segments so far
};

/// Runs a segment that takes `work` seconds alone. When the segment starts, compute has lost `lost`
/// seconds. The segment and compute slow each other down until one of them ends.
inline Run run_beside(const Model& model, double start, double lost, double work) {
  const Contention& speed = model.contention;
  if (speed.none()) return {start + work, start + work, lost};
  const double rest = std::max(0.0, model.ready.back() + lost - start);
  const double left = rest / speed.compute;
  const double done = speed.communication * left;
  const double beside = work <= done ? work / speed.communication : left;
  const double end = work <= done ? start + beside : start + left + (work - done);
  return {end, start + beside, lost + (1 - speed.compute) * beside};
}

}  // namespace hccl::split
