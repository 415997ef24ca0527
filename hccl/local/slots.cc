// slots: each rank copies its whole input into its staging buffer and announces the operation. Then
// every rank takes its data from all buffers. Data crosses between cores once, and the ranks
// synchronize once.
#include "hccl/local/entries.h"
#include "hccl/local/take.h"

namespace hccl::local {
namespace {

// Prefetching is for short inputs of ranks that have a core each. After a rank has written its
// input, it passes the lines to the cache that the cores share. After an operation it fetches the
// lines for its next input back from the readers. A reader that waits for an announcement already
// requests the lines of the shortest inputs, so that they arrive together with the slot. Requests
// for longer inputs would take lines away from a rank that is still writing them.
constexpr std::size_t kShort = 8192;
constexpr std::size_t kShortest = 256;

bool hints(const Region& region, std::size_t bytes, std::size_t most) {
  return bytes <= most && !region.waits().policy().shared_cores;
}

}  // namespace

std::string refuse_slots(const Case& c, const Topology&) {
  return c.bytes <= Staging::kMostWhole ? "" : "an input is longer than 512 KiB";
}

void announce_slots(Region& region, Operation& op) {
  op.whole_at = region.staging().next_whole(op.bytes);
  if (op.blocks.gives(region.local_rank())) {
    kernels::copy(op.in(), region.staging().of(region.local_rank()) + op.whole_at, op.bytes,
                  op.staged_store(op.bytes));
  }
  region.announce();
  if (op.blocks.gives(region.local_rank()) && hints(region, op.bytes, kShort)) {
    hand_over(region.staging().of(region.local_rank()) + op.whole_at, op.bytes);
  }
}

void prefetch_slots(const Region& region, const Operation& op, int giver) {
  if (!hints(region, op.bytes, kShortest) || !op.blocks.gives(giver)) return;
  const std::size_t at = op.blocks.in(region.local_rank()).at * op.element;
  will_read(region.staging().of(giver) + op.whole_at + at, op.call.count * op.element);
}

Status run_slots(Region& region, const Operation& op) {
  const std::size_t at = op.whole_at + op.blocks.in(region.local_rank()).at * op.element;
  take(region, op, 0, op.call.count, [&](int giver) { return region.staging().of(giver) + at; });
  if (hints(region, op.bytes, kShort)) {
    will_write(region.staging().of(region.local_rank()) + region.staging().peek_whole(op.bytes),
               op.bytes);
  }
  return {};
}

}  // namespace hccl::local
