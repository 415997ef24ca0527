#include "split/plan_search.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "split/strategy.h"

namespace hccl::split {
namespace {

constexpr double kNothing = 0.001;  // more segments must gain at least this share of the end
constexpr std::size_t kMostUnits = 256;

/// Groups of adjacent gradients, at most kMostUnits. Each unit has about the same share of bytes
/// and of time.
struct Units {
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready;
  std::vector<std::uint32_t> last;  // last gradient of each unit
};

Units draw_together(const Problem& problem) {
  Units units;
  double total = 0, span = 0;
  for (const auto each : problem.bytes) total += static_cast<double>(each);
  for (const double each : problem.ready) span = std::max(span, each);
  const double share = 2.0 / static_cast<double>(kMostUnits);
  double bytes = 0, until = 0, begun = 0;
  for (std::size_t i = 0; i < problem.bytes.size(); ++i) {
    const auto size = static_cast<double>(problem.bytes[i]);
    until = std::max(until, problem.ready[i]);
    const bool full =
        !units.last.empty() && (bytes + size > share * total || until - begun > share * span);
    if (units.last.empty() || full) {
      units.bytes.push_back(0);
      units.ready.push_back(0);
      units.last.push_back(0);
      bytes = 0;
      begun = until;
    }
    bytes += size;
    units.bytes.back() += problem.bytes[i];
    units.ready.back() = until;
    units.last.back() = static_cast<std::uint32_t>(i);
  }
  return units;
}

Result<Plan> plan_at_most(const Problem& problem, const Cost& cost) {
  const bool linear = std::holds_alternative<AffineCost>(cost) && problem.contention.none();
  if (linear || problem.bytes.size() <= kMostUnits) return plan_segments(problem, cost);
  const Units units = draw_together(problem);
  Problem smaller = problem;
  smaller.bytes = units.bytes;
  smaller.ready = units.ready;
  auto found = plan_segments(smaller, cost);
  if (found.ok())
    for (std::uint32_t& last : found->last_indices) last = units.last[last];
  return found;
}

}  // namespace

Result<Plan> best_plan(const Problem& problem, const Cost& cost) {
  Problem some = problem;
  some.max_segments =
      static_cast<std::uint32_t>(std::min<std::size_t>(problem.max_segments, kDocumentedSegments));
  auto found = plan_at_most(some, cost);
  while (found.ok() && some.max_segments < problem.max_segments) {
    some.max_segments = std::min(2 * some.max_segments, problem.max_segments);
    auto more = plan_at_most(some, cost);
    if (!more.ok()) return more;
    const bool enough = more->best_end > (1 - kNothing) * found->best_end;
    found = std::move(more);
    if (enough) break;
  }
  return found;
}

}  // namespace hccl::split
