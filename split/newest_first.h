// The gain if the newest gradients are sent first, for a training with known times, and the memory
// of the messages. Pure.
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

/// No trace tells when the next forward needs a gradient. It is assumed that forward lasts until
/// the first gradient is ready, and takes the gradients in the reverse order of backward.
/// Contention is ignored. kPara: as for plan_newest_first.
Result<NewestFirst> newest_first(const Profile& profile,
                                 std::span<const std::uint32_t> last_indices,
                                 const AffineCost& cost);

/// A range of the concatenation of all gradients.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const Range&) const = default;
};

/// The messages of a plan for gradients of these sizes, in order. A message with several parts of
/// memory gives one range for each part.
std::vector<Range> ranges(const PriorityPlan& plan, std::span<const std::uint64_t> sizes);

}  // namespace hccl::split
