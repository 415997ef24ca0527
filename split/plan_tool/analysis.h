// What hccl-plan finds out: from the traces of a training to today's plan, the best one, why, and
// what would be if the job were another. Pure; seconds and bytes throughout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "split/cost_model.h"
#include "split/newest_first.h"
#include "split/planner.h"
#include "split/profile.h"

namespace hccl::split::plan_tool {

using Cost = std::variant<AffineCost, TableCost>;

/// A network between ranks, whatever their number.
struct Link {
  double start = 0;             ///< of one allreduce; seconds
  double bytes_per_second = 0;  ///< of the line of one rank
};

struct Options {
  std::uint32_t max_segments = kDocumentedSegments;
  double slack = 0.005;
  /// Instead of what the trace says. Bandwidth is that of the line of one rank.
  std::optional<double> start;
  std::optional<double> bytes_per_second;
  std::optional<std::uint32_t> ranks;
  /// Further rows of what-if.
  std::vector<std::uint32_t> what_if_ranks;
  std::vector<Link> what_if_links;
};

/// A plan, and what the model says of it.
struct View {
  Segments last_indices;
  Prediction prediction;
  double compute_end = 0;  ///< of backward, beside this plan
  double lower_bound = 0;  ///< of any plan
  /// From the end of backward to the end of the last allreduce; below 0 if all was through before.
  double tail() const { return prediction.end - compute_end; }
  double gap() const { return lower_bound > 0 ? prediction.end / lower_bound - 1 : 0; }
};

/// One segment of a view.
struct SegmentView {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint64_t bytes = 0;
  double ready = 0;  ///< when its last gradient is
  Prediction::Times times;
};
std::vector<SegmentView> segments_of(const Profile& profile, const View& view);

/// One row of what-if: today's plan and the best one in another world.
struct Scenario {
  std::string label;
  View today;
  View best;
};

struct Analysis {
  std::string group;
  Profile profile;
  std::uint32_t ranks = 1;  ///< that the plans are for
  std::uint32_t max_segments = kDocumentedSegments;
  Cost cost;          ///< that the plans were made with
  AffineCost line;    ///< the same as a line
  double misfit = 0;  ///< how far the samples are from the line, as a fraction; 0 if it was given
  bool cost_given = false;
  View today;
  View best;
  View best_of_todays_count;  ///< the best with at most as many segments as today
  std::vector<Scenario> by_segments;
  std::vector<Scenario> by_ranks;
  std::vector<Scenario> by_links;
  /// Against the best plan, by `line`; nothing if no overlap pays, or no time passes.
  std::optional<NewestFirst> newest_first;
};

/// The bytes that a rank sends for each byte of an allreduce: 2 (ranks - 1) / ranks.
double share(std::uint32_t ranks);

/// The same network with another number of ranks: a start has 2 ceil(log2 ranks) hops, as halving
/// and doubling has, and each byte is sent share(ranks) times. Both at least 2 ranks.
AffineCost at_ranks(const AffineCost& cost, std::uint32_t from, std::uint32_t to);

/// kPara: no such trace, or nothing to learn the cost from (one rank, or no allreduce) and none
/// given.
Result<Analysis> analyse(std::span<const Trace> traces, const Options& options);

/// When the last segment of a plan ends in the analysis' own world.
Result<double> end_of(const Analysis& analysis, std::span<const std::uint32_t> last_indices);

}  // namespace hccl::split::plan_tool
