// Two levels, for hosts with the same number of ranks. The vector is cut into one slice for each
// local rank, and each slice into one chunk for each host. First each rank of a host sums its slice
// over all ranks of the host. Then the ranks with the same local rank on all hosts sum and spread
// the chunks of their slice. Then the ranks of a host exchange their slices. Together the ranks of
// a host send as many bytes to other hosts as a single rank would; each sends an equal share.
//
//   host 0:  rank 0 --slice 0-- rank 1        chunks 0 .. H-1 are slice 0, of local rank 0
//              |                  |           chunks H .. 2H-1 are slice 1, …
//   host 1:  rank 2 --slice 0-- rank 3
#include <algorithm>
#include <utility>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"

namespace hccl::schedule {
namespace {

// This rank's peers on one level: `members` ranks, one of which, number `self`, is this rank. Each
// owns `chunks` consecutive chunks.
struct Level {
  int rank(int member) const { return first_rank + member * stride; }
  int chunk(int member) const { return first_chunk + member * chunks; }

  int members;
  int self;
  int first_rank;
  int stride;
  int first_chunk;
  int chunks;
};

// Each member sends every other member its part of that member's chunks, which lies in `from`: the
// buffer in() or out(). Folds are in the order of the members.
Step sum(const Level& level, Slice (*from)(int, int)) {
  Step step;
  const int mine = level.chunk(level.self), chunks = level.chunks;
  Fold fold{out(mine, chunks), {}};
  for (int member = 0, slot = 0; member < level.members; ++member) {
    if (member == level.self) {
      fold.inputs.push_back(from(mine, chunks));
      continue;
    }
    const int peer = level.rank(member);
    step.sends.push_back(send(peer, from(level.chunk(member), chunks)));
    step.recvs.push_back(recv(peer, scratch(slot, mine, chunks)));
    fold.inputs.push_back(scratch(slot, mine, chunks));
    slot += chunks;
  }
  step.folds.push_back(std::move(fold));
  return step;
}

Step spread(const Level& level) {
  Step step;
  for (int member = 0; member < level.members; ++member) {
    if (member == level.self) continue;
    const int peer = level.rank(member);
    step.sends.push_back(send(peer, out(level.chunk(level.self), level.chunks)));
    step.recvs.push_back(recv(peer, out(level.chunk(member), level.chunks)));
  }
  return step;
}

}  // namespace

Schedule allreduce_two_level(const Shape& shape) {
  if (shape.hosts <= 1 || shape.hosts == shape.size) return allreduce_direct(shape);
  const int hosts = shape.hosts, local = shape.size / hosts;
  const int host = shape.rank / local, place = shape.rank % local;
  const Level on_host{.members = local,
                      .self = place,
                      .first_rank = host * local,
                      .stride = 1,
                      .first_chunk = 0,
                      .chunks = hosts};
  const Level between_hosts{.members = hosts,
                            .self = host,
                            .first_rank = place,
                            .stride = local,
                            .first_chunk = place * hosts,
                            .chunks = 1};
  Schedule schedule = begin(shape.size, std::max((local - 1) * hosts, hosts - 1));
  schedule.steps = {sum(on_host, in), sum(between_hosts, out), spread(between_hosts),
                    spread(on_host)};
  return schedule;
}

}  // namespace hccl::schedule
