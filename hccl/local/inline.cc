// inline: the input travels in the slot that announces the operation. Only one cache line of each
// rank crosses between cores.
#include <cstring>

#include "hccl/local/entries.h"
#include "hccl/local/take.h"

namespace hccl::local {

std::string refuse_inline(const Case& c, const Topology&) {
  return c.bytes <= Slot::kPayload ? "" : "an input is longer than the 56 bytes of a slot";
}

void announce_inline(Region& region, Operation& op) {
  if (op.blocks.gives(region.local_rank()) && op.bytes != 0) {
    std::memcpy(region.payload(), op.in(), op.bytes);
  }
  region.announce();
}

Status run_inline(Region& region, const Operation& op) {
  const std::size_t at = op.blocks.in(region.local_rank()).at * op.element;
  take(region, op, 0, op.call.count, [&](int giver) { return region.payload(giver) + at; });
  return {};
}

}  // namespace hccl::local
