// The traces of the fusion engine.
#include "split/engine/overlap.h"

namespace hccl::split {

TraceIteration Overlap::iteration(const Times& times) const {
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
  for (std::uint32_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& each = gradients_[i];
    out.gradients.push_back({i, each.name, each.count * size_of(type_), times.ready[i]});
  }
  std::uint32_t first = 0;
  for (std::size_t s = 0; s < times.plan->last_indices.size(); ++s) {
    const std::uint32_t last = times.plan->last_indices[s];
    out.segments.push_back({first, last, times.plan->bytes[s], times.algorithm[s], times.start[s],
                            times.end[s], times.wait_for_peer[s], times.cpu[s]});
    first = last + 1;
  }
  return out;
}

std::string Overlap::timeline() const {
  if (over_) return timeline_text(iteration(now_));
  return past_.empty() ? "" : timeline_text(iteration(past_.back()));
}

Trace Overlap::trace() const {
  Trace out;
  out.rank = static_cast<std::uint32_t>(communicator_->rank());
  out.rank_size = static_cast<std::uint32_t>(communicator_->size());
  out.group = communicator_->name();
  for (const Times& times : past_) out.iterations.push_back(iteration(times));
  if (over_) out.iterations.push_back(iteration(now_));
  return out;
}

}  // namespace hccl::split
