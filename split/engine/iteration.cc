#include "split/engine/iteration.h"

#include <algorithm>
#include <utility>

namespace hccl::split {

namespace {

// Bounds the recorded times, and the message that is made of them.
constexpr std::size_t kBytes = std::size_t{16} << 20;

}  // namespace

// Returns an upper bound for the bytes of an iteration in the message. A number has at most 10
// bytes.
std::size_t Recording::bytes_in_message(const Times& times) const {
  std::size_t bytes = 160 + 128 * times.end.size();
  for (const TraceGradient& each : gradients_) bytes += 32 + each.name.size();
  return bytes;
}

void Recording::begin(std::shared_ptr<const PlanVersion> plan, bool overlapped) {
  const std::size_t segments = plan->last_indices.size();
  const std::size_t bytes =
      sizeof(Times) + (gradients_.size() + 8 * segments) * sizeof(std::int64_t);
  Times next;
  if (past_.size() + 1 >= std::clamp<std::size_t>(kBytes / bytes, 2, kMost)) {
    next = std::move(past_.front());  // reuses its memory
    past_.pop_front();
  }
  next.number = now_.number + 1;
  next.begin = over() ? now_.wait_end : now_ns();
  next.overlapped = overlapped;
  next.fp_start = next.bp_end = next.wait_begin = next.wait_end = next.iteration_end = 0;
  next.ready.assign(gradients_.size(), 0);
  for (auto* each : {&next.start, &next.end, &next.cpu, &next.wait_for_peer})
    each->assign(segments, 0);
  next.algorithm.resize(segments);
  next.plan = std::move(plan);
  if (over()) past_.push_back(std::move(now_));
  now_ = std::move(next);
}

TraceIteration Recording::iteration(const Times& times) const {
  TraceIteration out;
  out.number = times.number;
  out.begin_ns = times.begin;
  out.compute_end_ns = times.compute_end();
  out.overlapped = times.overlapped;
  out.plan_version = times.plan->version;
  out.predicted_end_ns = times.plan->predicted_end;
  out.lower_bound_ns = times.plan->lower_bound;
  if (times.fp_start != 0) out.marks.push_back({"fp_start", times.fp_start});
  if (times.bp_end != 0) out.marks.push_back({"bp_end", times.bp_end});
  if (times.iteration_end != 0) out.marks.push_back({"iteration_end", times.iteration_end});
  out.gradients = gradients_;
  for (TraceGradient& each : out.gradients) each.ready_ns = times.ready[each.index];
  std::uint32_t first = 0;
  for (std::size_t s = 0; s < times.plan->last_indices.size(); ++s) {
    const std::uint32_t last = times.plan->last_indices[s];
    out.segments.push_back({first, last, times.plan->bytes[s], times.algorithm[s], times.start[s],
                            times.end[s], times.wait_for_peer[s], times.cpu[s]});
    first = last + 1;
  }
  return out;
}

std::string Recording::timeline() const {
  if (over()) return timeline_text(iteration(now_));
  return past_.empty() ? "" : timeline_text(iteration(past_.back()));
}

Trace Recording::trace() const {
  std::vector<const Times*> newest_first;
  if (over()) newest_first.push_back(&now_);
  for (auto at = past_.rbegin(); at != past_.rend(); ++at) newest_first.push_back(&*at);
  // An iteration that failed has no times of some segments.
  std::erase_if(newest_first, [](const Times* t) { return std::ranges::count(t->end, 0) != 0; });
  std::size_t bytes = 0;
  std::size_t fit = 0;
  for (const Times* each : newest_first) {
    bytes += bytes_in_message(*each);
    if (bytes > kBytes && fit > 0) break;
    ++fit;
  }
  Trace out = heading_;
  for (std::size_t i = fit; i > 0; --i) out.iterations.push_back(iteration(*newest_first[i - 1]));
  return out;
}

}  // namespace hccl::split
