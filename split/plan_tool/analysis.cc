#include "split/plan_tool/analysis.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "split/newest_first.h"
#include "split/plan_tool/words.h"

namespace hccl::split::plan_tool {
namespace {

constexpr double kGbit = 1e9 / 8;  // bytes per second
constexpr double kUsualGbits[] = {1, 10, 25, 100};
constexpr std::uint32_t kUsualRanks[] = {2, 4, 8, 16, 32, 64};

Problem problem_of(const Profile& profile, const Options& options) {
  Problem problem{profile.bytes, profile.ready};
  problem.max_segments = options.max_segments;
  problem.slack = options.slack;
  if (profile.contention) problem.contention = *profile.contention;
  return problem;
}

/// A problem, and the plan that the traces show.
struct World {
  Problem problem;
  double rest = 0;  ///< the time from the ready time of the last gradient to the end of backward
  Segments today;
  std::vector<double> after;  ///< ready times of segments that wait for the end of backward
  bool overlapped = true;     ///< today's segments do not wait for the end of backward
};

World world_of(const Profile& profile, const Options& options) {
  World world;
  world.problem = problem_of(profile, options);
  const double last = *std::max_element(profile.ready.begin(), profile.ready.end());
  world.rest = std::max(0.0, profile.compute_end - last);
  world.today = profile.last_indices;
  world.after.assign(profile.ready.size(), last + world.rest);
  world.overlapped = profile.overlapped;
  return world;
}

Result<View> view_of(const World& world, Segments plan, double lower_bound, const Cost& cost) {
  View view;
  HCCL_ASSIGN_OR_RETURN(view.prediction, predict(world.problem, plan, cost));
  view.last_indices = std::move(plan);
  view.compute_end = view.prediction.compute_end + world.rest;
  view.lower_bound = lower_bound;
  return view;
}

Result<View> best_view(const World& world, const Cost& cost) {
  HCCL_ASSIGN_OR_RETURN(Plan plan, plan_segments(world.problem, cost));
  return view_of(world, std::move(plan.last_indices), plan.lower_bound, cost);
}

// Returns today's plan as it runs.
Result<View> today_view(const World& world, double lower_bound, const Cost& cost) {
  if (world.overlapped) return view_of(world, world.today, lower_bound, cost);
  World serial = world;
  serial.problem.ready = serial.after;
  serial.rest = 0;
  return view_of(serial, world.today, lower_bound, cost);
}

Result<Scenario> scenario(std::string label, const World& world, const Cost& cost) {
  Scenario row;
  row.label = std::move(label);
  HCCL_ASSIGN_OR_RETURN(row.best, best_view(world, cost));
  const auto segments = static_cast<std::uint32_t>(world.today.size());
  if (segments > world.problem.max_segments && std::holds_alternative<TableCost>(cost)) {
    // A table's bound holds for as many segments as were allowed.
    World as_many = world;
    as_many.problem.max_segments = segments;
    HCCL_ASSIGN_OR_RETURN(const Plan plan, plan_segments(as_many.problem, cost));
    row.best.lower_bound = plan.lower_bound;
  }
  HCCL_ASSIGN_OR_RETURN(row.today, today_view(world, row.best.lower_bound, cost));
  return row;
}

/// Makes a cost model as cost_model() does. But if all samples without overlap have about the same
/// size, they do not separate the start cost from the cost per byte. Then the samples that overlap
/// backward count, too.
Result<CostModel> learn(const Profile& profile) {
  const auto& alone = profile.samples;
  const auto [least, most] = std::minmax_element(
      alone.begin(), alone.end(),
      [](const CostSample& a, const CostSample& b) { return a.bytes < b.bytes; });
  if (alone.empty() || most->bytes / 2 >= least->bytes) return cost_model(profile);
  std::vector<CostSample> all = alone;
  const double speed = profile.contention ? profile.contention->communication : 1;
  for (const CostSample& sample : profile.overlapped_samples)
    all.push_back({sample.bytes, sample.seconds * speed});
  return CostModel::create(all);
}

/// Takes the cost for `ranks` ranks from the trace and the options.
Status find_cost(const Options& options, Analysis& out) {
  const std::uint32_t traced = out.profile.rank_size;
  const Result<CostModel> learnt = learn(out.profile);
  const bool all_given = options.start && options.bytes_per_second;
  out.start_given = options.start.has_value();
  out.bandwidth_given = options.bytes_per_second.has_value();
  if (!all_given && (!learnt.ok() || traced < 2)) {
    return Status(Code::kPara,
                  traced < 2 ? "the trace is of one rank, which sends nothing: give the cost of "
                               "an allreduce with --start, --bandwidth and --ranks"
                             : "the trace does not show the cost of an allreduce (" +
                                   learnt.status().message() +
                                   "): give it with --start and "
                                   "--bandwidth");
  }
  if (all_given && std::max(out.ranks, traced) < 2)
    return Status(Code::kPara, "one rank sends nothing: give the number of ranks with --ranks");
  AffineCost line;
  if (learnt.ok() && traced >= 2) {
    line = learnt->affine();
    if (!all_given) out.misfit = learnt->misfit();
    if (out.ranks != traced) line = at_ranks(line, traced, out.ranks);
  }
  const AffineCost measured_line = line;
  if (options.start) line.start = *options.start;
  if (options.bytes_per_second) line.per_byte = share(out.ranks) / *options.bytes_per_second;
  if (!all_given && learnt->has_one_size()) {
    // The line goes through one point only, so what is given leaves the rest of that time for the
    // other.
    const auto& samples =
        out.profile.samples.empty() ? out.profile.overlapped_samples : out.profile.samples;
    const auto bytes = static_cast<double>(std::max<std::uint64_t>(samples.front().bytes, 1));
    const double time = measured_line.start + measured_line.per_byte * bytes;
    if (options.start) line.per_byte = std::max(0.0, time - line.start) / bytes;
    if (options.bytes_per_second) line.start = std::max(0.0, time - line.per_byte * bytes);
    out.start_unknown = !options.start && !options.bytes_per_second;
  }
  out.line = line;
  out.cost = line;
  const bool measured = !options.start && !options.bytes_per_second;
  if (measured && out.ranks == traced && !learnt->is_affine()) out.cost = learnt->table();
  return {};
}

Status add_what_if(const Options& options, const World& world, Analysis& out) {
  const auto most = static_cast<std::uint32_t>(
      std::min<std::size_t>(options.max_segments, world.problem.bytes.size()));
  for (std::uint32_t k = 1; k <= most; ++k) {
    // The table of what-if stays short: above 16, only powers of two and the largest number have a
    // row.
    if (k > 16 && k != most && !std::has_single_bit(k)) continue;
    World limited = world;
    limited.problem.max_segments = k;
    HCCL_ASSIGN_OR_RETURN(Scenario row, scenario(std::to_string(k), limited, out.cost));
    out.by_segments.push_back(std::move(row));
  }
  std::vector<std::uint32_t> counts(std::begin(kUsualRanks), std::end(kUsualRanks));
  counts.push_back(out.ranks);
  counts.insert(counts.end(), options.what_if_ranks.begin(), options.what_if_ranks.end());
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (const std::uint32_t ranks : counts) {
    const Cost cost = ranks == out.ranks ? out.cost : at_ranks(out.line, out.ranks, ranks);
    HCCL_ASSIGN_OR_RETURN(Scenario row, scenario(std::to_string(ranks), world, cost));
    out.by_ranks.push_back(std::move(row));
  }
  const auto add_link = [&](std::string label, const Link& link) -> Status {
    const AffineCost cost{link.start, share(out.ranks) / link.bytes_per_second};
    HCCL_ASSIGN_OR_RETURN(Scenario row, scenario(std::move(label), world, cost));
    out.by_links.push_back(std::move(row));
    return {};
  };
  for (const double gbit : kUsualGbits)
    HCCL_RETURN_IF_ERROR(add_link(format("%.6g Gbit/s", gbit), Link{out.line.start, gbit * kGbit}));
  for (const Link& link : options.what_if_links)
    HCCL_RETURN_IF_ERROR(add_link(
        format("%.6g Gbit/s, start %.6g us", link.bytes_per_second / kGbit, link.start * 1e6),
        link));
  return {};
}

Status add_newest_first(Analysis& out) {
  if (out.profile.contention && !out.profile.contention->overlap_pays()) return {};
  const std::vector<double>& ready = out.profile.ready;
  const double end =
      std::max(out.profile.compute_end, *std::max_element(ready.begin(), ready.end()));
  if (!(ready.front() > 0) || !(end > ready.front())) return {};
  HCCL_ASSIGN_OR_RETURN(out.newest_first,
                        newest_first(out.profile, out.best.last_indices, out.line));
  return {};
}

}  // namespace

std::vector<SegmentView> segments_of(const Profile& profile, const View& view) {
  std::vector<SegmentView> out;
  std::uint32_t first = 0;
  for (std::size_t k = 0; k < view.last_indices.size(); ++k) {
    SegmentView segment{first, view.last_indices[k], 0, 0, view.prediction.segments[k]};
    for (std::uint32_t i = first; i <= segment.last; ++i) {
      segment.bytes += profile.bytes[i];
      segment.ready = std::max(segment.ready, view.prediction.ready[i]);
    }
    out.push_back(segment);
    first = segment.last + 1;
  }
  return out;
}

bool best_is_worse(const Analysis& analysis) {
  return analysis.best.prediction.end >
         analysis.today_overlapped.prediction.end * (1 + analysis.slack);
}

double share(std::uint32_t ranks) { return 2.0 * (ranks - 1.0) / ranks; }

AffineCost at_ranks(const AffineCost& cost, std::uint32_t from, std::uint32_t to) {
  const auto hops = [](std::uint32_t ranks) { return 2.0 * std::bit_width(ranks - 1); };
  return {cost.start * hops(to) / hops(from), cost.per_byte * share(to) / share(from)};
}

Result<Analysis> analyse(std::span<const Trace> traces, const Options& options) {
  Analysis out;
  out.group = traces.empty() ? "" : traces.front().group;
  HCCL_ASSIGN_OR_RETURN(out.profile, profile(traces));
  out.ranks = options.ranks.value_or(out.profile.rank_size);
  out.max_segments = options.max_segments;
  out.slack = options.slack;
  HCCL_RETURN_IF_ERROR(find_cost(options, out));

  const World world = world_of(out.profile, options);
  HCCL_ASSIGN_OR_RETURN(Scenario base, scenario("", world, out.cost));
  out.today = std::move(base.today);
  out.best = std::move(base.best);
  HCCL_ASSIGN_OR_RETURN(out.today_overlapped,
                        view_of(world, world.today, out.best.lower_bound, out.cost));
  const auto segments = static_cast<std::uint32_t>(world.today.size());
  if (std::holds_alternative<TableCost>(out.cost))
    out.bounded = std::max(out.max_segments, segments);
  World same_count = world;
  same_count.problem.max_segments = segments;
  HCCL_ASSIGN_OR_RETURN(out.best_of_todays_count, best_view(same_count, out.cost));
  HCCL_RETURN_IF_ERROR(add_what_if(options, world, out));
  HCCL_RETURN_IF_ERROR(add_newest_first(out));
  return out;
}

Result<double> end_of(const Analysis& analysis, std::span<const std::uint32_t> last_indices) {
  HCCL_ASSIGN_OR_RETURN(
      const Prediction prediction,
      predict(problem_of(analysis.profile, Options{}), last_indices, analysis.cost));
  return prediction.end;
}

}  // namespace hccl::split::plan_tool
