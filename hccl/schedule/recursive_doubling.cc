// Recursive doubling among P = 2^k ranks: partners at distance 1, 2, …, P/2 exchange their whole
// vectors. Both partners fold the two vectors with the lower ranks' sum first, so all ranks compute
// the same sum in the same order. Each rank sends k messages instead of the P - 1 of a direct
// exchange. The pattern suits cases in which the processor time of messages matters more than the
// number of steps.
//
// Idle ranks send their vector to a working rank first and receive the result at the end. In
// recursive doubling of n ranks, n - P ranks are idle; core_place() chooses them. In paired
// doubling the upper half of the ranks is idle. Paired doubling takes one step more but fewer
// messages, 6 instead of 8 among 4 ranks. It is faster if ranks share cores, because each message
// then costs a context switch.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

// worker(index) returns the rank that is number `index` among the working ranks.
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
    // Before the first fold, the data is still in kIn.
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

// The ranks of the lower half work, each also for one rank of the upper half.
Schedule allreduce_paired_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  const int half = shape.size / 2;
  const bool idle = shape.rank >= half;
  const int index = idle ? shape.rank - half : shape.rank;
  const CorePlace place = {half, index, idle, idle ? index : index + half};
  return doubling(place, [](int number) { return number; });
}

}  // namespace hccl::schedule
