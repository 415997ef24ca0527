// Recursive doubling among P = 2^k ranks: partners at distance 1, 2, …, P/2 exchange their whole
// vectors and both fold them, the lower ranks' sum first, so that all ranks compute the same sum in
// the same order. Each rank sends k messages in all; direct exchange takes n - 1. The processor
// time of messages matters here, not the number of steps.
//
// Some ranks send their vector to another rank first and receive the result from it at the end: the
// ranks beyond a power of two or, in pairs, every second rank. That takes two steps more and fewer
// messages, 6 instead of 8 among 4 ranks: where ranks share cores, each message costs a context
// switch.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// worker(index): the rank that is number `index` among the working ranks.
template <class Worker>
Schedule doubling(const CorePlace& place, Worker&& worker) {
  if (place.idle) {
    Schedule schedule = begin(1);
    schedule.steps.push_back(step({send(place.partner, in(0))}, {}));
    schedule.steps.push_back(step({}, {recv(place.partner, out(0))}));
    return schedule;
  }
  Schedule schedule = begin(1, place.core > 1 ? 1 : 0);
  const bool pair = place.partner >= 0;
  if (pair) schedule.steps.push_back(step({}, {recv_fold(place.partner, out(0), in(0))}));
  for (int distance = 1; distance < place.core; distance *= 2) {
    // Before anything is folded, the data is still in kIn.
    const Slice mine = distance == 1 && !pair ? in(0) : out(0), theirs = scratch(0, 0);
    const int partner = place.index ^ distance;
    const Fold fold =
        partner > place.index ? Fold{out(0), {mine, theirs}} : Fold{out(0), {theirs, mine}};
    const int peer = worker(partner);
    schedule.steps.push_back(step({send(peer, mine)}, {recv(peer, theirs)}, {fold}));
  }
  if (pair) schedule.steps.push_back(step({send(place.partner, out(0))}, {}));
  return schedule;
}

}  // namespace

Schedule allreduce_recursive_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  return doubling(core_place(shape.rank, shape.size),
                  [&](int index) { return core_rank(index, shape.size); });
}

// The lower half of the ranks work, each also for the rank at the same place in the upper half.
Schedule allreduce_paired_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  const int half = shape.size / 2;
  const bool idle = shape.rank >= half;
  const int index = idle ? shape.rank - half : shape.rank;
  const CorePlace place = {half, index, idle, idle ? index : index + half};
  return doubling(place, [](int number) { return number; });
}

}  // namespace hccl::schedule
