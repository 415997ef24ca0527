#include "split/newest_first.h"

#include <algorithm>

namespace hccl::split {

Result<NewestFirst> newest_first(const Profile& profile,
                                 std::span<const std::uint32_t> last_indices,
                                 const AffineCost& cost) {
  std::vector<double> ready = profile.ready;
  for (std::size_t i = 1; i < ready.size(); ++i) ready[i] = std::max(ready[i], ready[i - 1]);
  const double end = ready.empty() ? 0 : std::max(profile.compute_end, ready.back());
  const double forward = ready.empty() ? 0 : ready.front();
  const double backward = end - forward;
  std::vector<double> due;
  for (const double each : ready)
    due.push_back(end + (backward > 0 ? forward * (end - each) / backward : 0));
  const PriorityProblem problem{profile.bytes, profile.ready, due};
  NewestFirst out;
  HCCL_ASSIGN_OR_RETURN(out.in_order, late_in_order(problem, last_indices, cost));
  HCCL_ASSIGN_OR_RETURN(out.plan, plan_newest_first(problem, cost));
  return out;
}

std::vector<Range> ranges(const PriorityPlan& plan, std::span<const std::uint64_t> sizes) {
  std::vector<std::uint64_t> begin;  // of each gradient
  std::uint64_t sum = 0;
  for (const std::uint64_t size : sizes) {
    begin.push_back(sum);
    sum += size;
  }
  std::vector<Range> out;
  for (const GradientMessage& message : plan.messages) {
    bool first = true;
    for (const Piece& piece : message.pieces) {
      const std::uint64_t at = begin[piece.gradient] + piece.offset;
      if (!first && at + piece.bytes == out.back().begin) {
        out.back().begin = at;
      } else {
        out.push_back({at, at + piece.bytes});
      }
      first = false;
    }
  }
  return out;
}

}  // namespace hccl::split
