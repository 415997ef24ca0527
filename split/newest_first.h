// What newest first would be worth for a training whose times are known, and the memory that its
// messages reduce. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hccl/base/status.h"
#include "split/priority.h"
#include "split/profile.h"

namespace hccl::split {

struct NewestFirst {
  double in_order = 0;  ///< for how long the next forward waits with the segments given
  PriorityPlan plan;
};

/// When the next forward needs a gradient no trace says: forward is taken to last until the first
/// gradient is ready, and to go through the gradients as backward does, the other way round. As if
/// compute and communication did not slow each other down. kPara: as plan_newest_first.
Result<NewestFirst> newest_first(const Profile& profile,
                                 std::span<const std::uint32_t> last_indices,
                                 const AffineCost& cost);

/// A part of all gradients, which lie one behind the other.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const Range&) const = default;
};

/// The messages of a plan for gradients of these sizes, in order; one for each part of memory where
/// a message has several.
std::vector<Range> ranges(const PriorityPlan& plan, std::span<const std::uint64_t> sizes);

}  // namespace hccl::split
