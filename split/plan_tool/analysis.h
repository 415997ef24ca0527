// The analysis of hccl-plan: computes, from the traces of a training, today's plan, the best plan,
// the reasons, and the results for other links and numbers of ranks. Does no I/O; all values are in
// seconds and bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "split/cost_model.h"
#include "split/newest_first.h"
#include "split/planner.h"
#include "split/profile.h"

namespace hccl::split::plan_tool {

/// A network, independent of the number of ranks.
struct Link {
  double start = 0;             ///< start time of one allreduce, in seconds
  double bytes_per_second = 0;  ///< bandwidth of one rank's network link
};

struct Options {
  std::uint32_t max_segments = kDocumentedSegments;
  double slack = 0.005;
  /// These values replace those of the trace. The bandwidth is that of one rank's network link.
  std::optional<double> start;
  std::optional<double> bytes_per_second;
  std::optional<std::uint32_t> ranks;
  /// More numbers of ranks for which what-if gets a row.
  std::vector<std::uint32_t> what_if_ranks;
  std::vector<Link> what_if_links;
};

/// A plan and the model's prediction for it.
struct View {
  Segments last_indices;
  Prediction prediction;
  double compute_end = 0;  ///< end of backward with this plan
  double lower_bound = 0;  ///< no plan ends before this time; see Analysis::bounded
  /// The time from the end of backward to the end of the last allreduce. Negative if all allreduces
  /// ended before backward.
  double tail() const { return prediction.end - compute_end; }
  double gap() const {
    return lower_bound > 0 ? std::max(0.0, prediction.end / lower_bound - 1) : 0;
  }
};

/// One segment of a view.
struct SegmentView {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint64_t bytes = 0;
  double ready = 0;  ///< ready time of its last gradient
  Prediction::Times times;
};
std::vector<SegmentView> segments_of(const Profile& profile, const View& view);

/// One row of what-if: today's plan as it runs, and the best plan, in another setting.
struct Scenario {
  std::string label;
  View today;
  View best;
};

struct Analysis {
  std::string group;
  Profile profile;
  std::uint32_t ranks = 1;  ///< number of ranks that the plans are for
  std::uint32_t max_segments = kDocumentedSegments;
  double slack = 0;  ///< smaller differences, as fractions of the end, do not count
  Cost cost;         ///< the cost used for the plans
  AffineCost line;   ///< the same cost as a line
  /// Deviation of the samples from the line, as a fraction; 0 if the whole cost was given.
  double misfit = 0;
  bool start_given = false;
  bool bandwidth_given = false;
  bool start_unknown = false;  ///< all samples have about the same size; the start counts as 0
  /// The lower bound of `best` holds for plans of at most this many segments; nothing: for all
  /// plans. A row of what-if with fewer segments has the bound for as many, or for today's number.
  std::optional<std::uint32_t> bounded;
  View today;             ///< as it runs: beside backward, or after it if no iteration overlapped
  View today_overlapped;  ///< today's segments, beside backward
  View best;
  View best_of_todays_count;  ///< the best plan with at most as many segments as today
  std::vector<Scenario> by_segments;
  std::vector<Scenario> by_ranks;
  std::vector<Scenario> by_links;
  /// The gain of the newest-first order over the best plan, with the cost `line`. Empty if overlap
  /// does not pay, or if the iteration takes no time.
  std::optional<NewestFirst> newest_first;
};

/// Returns whether today's segments, beside backward, end before the best plan, which has fewer.
bool best_is_worse(const Analysis& analysis);

/// Returns the bytes that a rank sends for each byte of an allreduce: 2 (ranks - 1) / ranks.
double share(std::uint32_t ranks);

/// Returns the cost in the same network with another number of ranks. A start takes 2 ceil(log2
/// ranks) hops, as in halving-doubling, and a rank sends share(ranks) bytes for each byte. `from`
/// and `to` must be at least 2.
AffineCost at_ranks(const AffineCost& cost, std::uint32_t from, std::uint32_t to);

/// Fails with kPara if a trace is invalid. Also fails with kPara if the traces do not show the cost
/// (one rank, or no allreduce) and the options do not give the cost.
Result<Analysis> analyse(std::span<const Trace> traces, const Options& options);

/// Returns the end of the last segment of a plan in the setting of the analysis.
Result<double> end_of(const Analysis& analysis, std::span<const std::uint32_t> last_indices);

}  // namespace hccl::split::plan_tool
