// Makes the planner's input for a training from the traces of its ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "split/cost_model.h"
#include "split/planner.h"
#include "split/strategy.h"
#include "split/trace.h"

namespace hccl::split {

/// All times are seconds from the start of an iteration. They are medians over the iterations; in
/// each iteration the slowest rank counts.
struct Profile {
  std::uint32_t rank_size = 1;
  std::size_t iterations = 0;  ///< number of iterations used
  bool overlapped = true;      ///< false: in all iterations, the segments ran after backward
  std::vector<std::string> names;
  std::vector<std::uint64_t> bytes;
  /// The time at which each gradient is ready without communication. It comes from the iterations
  /// without overlap; if there are none, from all iterations as measured.
  std::vector<double> ready;
  double compute_end = 0;  ///< end of backward, from the same iterations
  /// The segments of the last iteration, and the times in the iterations that had these segments.
  Segments last_indices;
  std::vector<Prediction::Times> segments;
  double measured_compute_end = 0;
  double measured_end = 0;                     ///< end of the last segment
  std::vector<CostSample> samples;             ///< pure costs of segments without overlap
  std::vector<CostSample> overlapped_samples;  ///< segments that began during backward
  /// Empty if the traces do not show contention, because there was too little overlap, or no
  /// iteration without overlap.
  std::optional<Contention> contention;
};

/// Makes a profile from the traces of all ranks, or from one trace that stands for all ranks (see
/// merge_ranks). The first iteration is not typical, and is left out unless it is the only one.
/// Fails with kPara as merge_ranks() does, or if no iteration has a time.
Result<Profile> profile(std::span<const Trace> ranks);

/// Returns the cost model of a profile's samples. If no segment ran without overlap, uses the
/// segments that ran during backward, corrected to full speed. Fails with kPara without samples.
Result<CostModel> cost_model(const Profile& profile);

}  // namespace hccl::split
