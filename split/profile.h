// What the planner needs to know of a training, from the traces of its ranks.
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

/// Seconds from the begin of an iteration; medians over the iterations, of the slowest rank in
/// each.
struct Profile {
  std::uint32_t rank_size = 1;
  std::size_t iterations = 0;  ///< that it was made of
  std::vector<std::string> names;
  std::vector<std::uint64_t> bytes;
  /// When each gradient is ready if nothing is sent meanwhile: of the iterations that were not
  /// overlapped if there are some, else as measured.
  std::vector<double> ready;
  double compute_end = 0;  ///< of backward, likewise
  /// The segments of the last iteration, and how the iterations that had these went.
  Segments last_indices;
  std::vector<Prediction::Times> segments;
  double measured_compute_end = 0;
  double measured_end = 0;                     ///< of the last segment
  std::vector<CostSample> samples;             ///< pure costs of segments that ran beside nothing
  std::vector<CostSample> overlapped_samples;  ///< of those that began beside backward
  /// Measured; nothing if the traces do not show it (too little overlap, or no iteration without).
  std::optional<Contention> contention;
};

/// The traces of all ranks, or one that stands for all of them (see merge_ranks). The first
/// iteration is left out if there are more: it is no example. kPara as merge_ranks, and if there is
/// no iteration with a time in it.
Result<Profile> profile(std::span<const Trace> ranks);

/// The cost model of a profile's samples; those beside backward are used, brought to full speed, if
/// there are no others. kPara: no samples.
Result<CostModel> cost_model(const Profile& profile);

}  // namespace hccl::split
