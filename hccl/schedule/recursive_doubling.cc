// Recursive doubling among P = 2^k ranks: partners at distance 1, 2, …, P/2 exchange all that they
// have and both fold it, the lower ranks' sum first, so that all ranks make the same sum in the
// same order. Each rank sends k messages in all, where everybody to everybody takes n - 1: it is
// what messages cost the processor that counts here, not how far they travel. Ranks beyond a power
// of two lend their vector to a neighbour first and get the result from it at the end.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {

Schedule allreduce_recursive_doubling(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  const CorePlace place = core_place(shape.rank, shape.size);
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
    // Before anything is folded, the data still lies in kIn.
    const Slice mine = distance == 1 && !pair ? in(0) : out(0), theirs = scratch(0, 0);
    const int partner = place.index ^ distance;
    const Fold fold =
        partner > place.index ? Fold{out(0), {mine, theirs}} : Fold{out(0), {theirs, mine}};
    const int peer = core_rank(partner, shape.size);
    schedule.steps.push_back(step({send(peer, mine)}, {recv(peer, theirs)}, {fold}));
  }
  if (pair) schedule.steps.push_back(step({send(place.partner, out(0))}, {}));
  return schedule;
}

}  // namespace hccl::schedule
