// Computes, for a training with known times, how much the newest-first order gains, and which
// memory its messages contain. Does no I/O.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "split/priority.h"
#include "split/profile.h"

namespace hccl::split {

struct NewestFirst {
  double in_order = 0;  ///< seconds that the next forward waits with the given segments
  PriorityPlan plan;
};

/// A trace does not record when the next forward needs a gradient. So this function assumes that
/// forward lasts until the first gradient is ready, and needs the gradients in the reverse order of
/// backward. It ignores contention. Fails with kPara as plan_newest_first() does.
Result<NewestFirst> newest_first(const Profile& profile,
                                 std::span<const std::uint32_t> last_indices,
                                 const AffineCost& cost);

/// A range of elements or bytes in the concatenation of all gradients.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const Range&) const = default;
};

/// Returns the memory of a plan's messages, in order, for gradients of these sizes. A message with
/// several parts of memory gives one range for each part.
std::vector<Range> ranges(const PriorityPlan& plan, std::span<const std::uint64_t> sizes);

}  // namespace hccl::split
