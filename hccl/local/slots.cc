// slots: each rank copies its whole input into its staging buffer and announces the operation;
// then every rank takes what it needs from all buffers. One hop, one meeting.
#include "hccl/local/entries.h"
#include "hccl/local/take.h"

namespace hccl::local {
namespace {

// The one rule for prefetching: while a rank waits for a peer's announcement, it asks for the
// lines of an input that is no longer than this, so that they arrive together with the slot. A
// reader of longer inputs would take lines from a rank that is still writing them.
constexpr std::size_t kPrefetched = 256;
// After a short operation, each rank takes the lines of its next input back from the readers.
constexpr std::size_t kReclaimed = 8192;

}  // namespace

std::string refuse_slots(const Case& c, const Topology&) {
  return c.bytes <= Region::kMostWhole ? "" : "a staging buffer takes inputs whole up to 512 KiB";
}

void announce_slots(Region& region, Operation& op) {
  op.whole_at = region.next_whole(op.bytes);
  if (op.blocks.gives(region.place())) {
    kernels::copy(op.in(), region.staging(region.place()) + op.whole_at, op.bytes,
                  op.staged_store(op.bytes));
  }
  region.announce();
}

void prefetch_slots(const Region& region, const Operation& op, int giver) {
  if (op.bytes > kPrefetched || region.shared_cores() || !op.blocks.gives(giver)) return;
  const std::size_t at =
      op.blocks.block_for_each() ? op.blocks.in(region.place()).at * op.element : 0;
  will_read(region.staging(giver) + op.whole_at + at, op.call.count * op.element);
}

Status run_slots(Region& region, const Operation& op) {
  const std::size_t at =
      op.whole_at + (op.blocks.block_for_each() ? op.blocks.in(region.place()).at * op.element : 0);
  take(region, op, 0, op.call.count, [&](int giver) { return region.staging(giver) + at; });
  if (!region.shared_cores()) {
    will_write(region.staging(region.place()) + region.peek_whole(op.bytes),
               std::min(op.bytes, kReclaimed));
  }
  return {};
}

}  // namespace hccl::local
