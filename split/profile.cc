#include "split/profile.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "split/statistics.h"

namespace hccl::split {
namespace {

using Iterations = std::vector<const TraceIteration*>;

double compute_end(const TraceIteration& iteration) { return seconds(iteration.compute_end_ns); }

double beside(const TraceIteration& iteration, const TraceSegment& segment) {
  return seconds(std::max<std::int64_t>(
      0, std::min(segment.end_ns, iteration.compute_end_ns) - segment.start_ns));
}

void take_samples(const Iterations& iterations, Profile& out) {
  for (const TraceIteration* each : iterations) {
    for (const auto& segment : each->segments) {
      const CostSample sample{segment.bytes, seconds(segment.end_ns - segment.start_ns)};
      if (sample.seconds <= 0) continue;
      const bool behind = segment.start_ns >= each->compute_end_ns;
      (behind ? out.samples : out.overlapped_samples).push_back(sample);
    }
  }
}

std::optional<Contention> contention(const Profile& profile, const Iterations& overlapped) {
  if (profile.samples.empty() || overlapped.empty() || profile.compute_end <= 0)
    return std::nullopt;
  const auto model = CostModel::create(profile.samples);
  if (!model.ok()) return std::nullopt;
  const auto busy = [](const TraceIteration& each) {
    double sum = 0;
    for (const auto& segment : each.segments) sum += beside(each, segment);
    return sum;
  };
  const auto work = [&](const TraceIteration& each) {
    double sum = 0;
    for (const auto& segment : each.segments) {
      const double part = beside(each, segment);
      const double behind = seconds(segment.end_ns - segment.start_ns) - part;
      if (part > 0) sum += std::max(0.0, model.value().affine()(segment.bytes) - behind);
    }
    return sum;
  };
  return contention_of({profile.compute_end, median_of(overlapped, compute_end),
                        median_of(overlapped, busy), median_of(overlapped, work)});
}

}  // namespace

Result<Profile> profile(std::span<const Trace> ranks) {
  HCCL_ASSIGN_OR_RETURN(Trace trace, merge_ranks(ranks));
  if (trace.iterations.size() > 1) trace.iterations.erase(trace.iterations.begin());
  Profile out;
  out.rank_size = trace.rank_size;
  out.iterations = trace.iterations.size();
  const TraceIteration& last = trace.iterations.back();
  for (const auto& gradient : last.gradients) {
    out.names.push_back(gradient.name);
    out.bytes.push_back(gradient.bytes);
  }
  for (const auto& segment : last.segments) out.last_indices.push_back(segment.last);
  Iterations all, alone, overlapped, like_last;
  for (const TraceIteration& each : trace.iterations) {
    all.push_back(&each);
    (each.overlapped ? overlapped : alone).push_back(&each);
    Segments indices;
    for (const auto& segment : each.segments) indices.push_back(segment.last);
    if (indices == out.last_indices) like_last.push_back(&each);
  }
  out.overlapped = !overlapped.empty();
  const Iterations& undisturbed = alone.empty() ? all : alone;
  for (std::size_t i = 0; i < out.bytes.size(); ++i) {
    out.ready.push_back(median_of(undisturbed, [i](const TraceIteration& each) {
      return seconds(each.gradients[i].ready_ns);
    }));
  }
  out.compute_end = median_of(undisturbed, compute_end);
  // Uses the iterations that have overlap and the same segments as the last iteration. If there are
  // none, uses all iterations with these segments.
  Iterations typical;
  std::copy_if(like_last.begin(), like_last.end(), std::back_inserter(typical),
               [](const TraceIteration* each) { return each->overlapped; });
  if (typical.empty()) typical = like_last;
  for (std::size_t k = 0; k < out.last_indices.size(); ++k) {
    const double start =
        median_of(typical, [k](const auto& each) { return seconds(each.segments[k].start_ns); });
    const double end =
        median_of(typical, [k](const auto& each) { return seconds(each.segments[k].end_ns); });
    out.segments.push_back({start, end});
  }
  out.measured_compute_end = median_of(typical, compute_end);
  out.measured_end = out.segments.empty() ? 0 : out.segments.back().end;
  if (out.compute_end <= 0 && out.measured_end <= 0)
    return Status(Code::kPara, "the trace has no times");
  take_samples(all, out);
  if (!alone.empty()) out.contention = contention(out, overlapped);
  return out;
}

Result<CostModel> cost_model(const Profile& profile) {
  if (!profile.samples.empty()) return CostModel::create(profile.samples);
  std::vector<CostSample> samples = profile.overlapped_samples;
  const double speed = profile.contention ? profile.contention->communication : 1;
  for (CostSample& each : samples) each.seconds *= speed;
  if (samples.empty()) {
    return Status(Code::kPara, "the trace has no segment with a time, so it shows no costs");
  }
  return CostModel::create(samples);
}

}  // namespace hccl::split
