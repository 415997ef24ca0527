// Chain (HCCL: pipeline): the ranks form a line that starts at the root, and `depth` chunks follow
// each other along the line. While a rank receives chunk k, it sends chunk k - 1: n - 2 + depth
// steps in all.
#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {

Schedule broadcast_chain(const Shape& shape) {
  const int n = shape.size, depth = shape.depth, place = wrap(shape.rank - shape.root, n);
  Schedule chain = begin(depth);
  if (n == 1) return chain;
  const bool first = place == 0, last = place == n - 1;
  const int towards_root = wrap(shape.rank - 1, n), away = wrap(shape.rank + 1, n);
  for (int time = first ? 1 : 0; time < (last ? depth : depth + 1); ++time) {
    Step step;
    if (!first && time < depth) step.recvs.push_back(recv(towards_root, out(time)));
    if (!last && time > 0) step.sends.push_back(send(away, out(time - 1)));
    chain.steps.push_back(std::move(step));
  }
  return chain;
}

// The chain in reverse: sums start at the far end. Two slots alternate, since a rank sends one
// chunk while it receives the next.
Schedule reduce_chain(const Shape& shape) {
  const int n = shape.size, depth = shape.depth, place = wrap(shape.rank - shape.root, n);
  if (n == 1) return copy_only();
  const bool root = place == 0, last = place == n - 1;
  const int towards_root = wrap(shape.rank - 1, n), away = wrap(shape.rank + 1, n);
  Schedule chain = begin(depth, root || last ? 0 : 2);
  const auto sum = [&](int chunk) { return root ? out(chunk) : scratch(chunk % 2, chunk); };
  for (int time = last ? 1 : 0; time < (root ? depth : depth + 1); ++time) {
    Step step;
    if (!last && time < depth) step.recvs.push_back(recv_fold(away, sum(time), in(time)));
    if (!root && time > 0) {
      step.sends.push_back(send(towards_root, last ? in(time - 1) : sum(time - 1)));
    }
    chain.steps.push_back(std::move(step));
  }
  return chain;
}

}  // namespace hccl::schedule
