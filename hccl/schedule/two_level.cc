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

struct Places {
  explicit Places(const Shape& shape)
      : hosts(shape.hosts),
        local(shape.size / shape.hosts),
        host(shape.rank / local),
        place(shape.rank % local) {}

  int rank(int of_host, int of_place) const { return of_host * local + of_place; }
  int chunk(int of_place, int of_host) const { return of_place * hosts + of_host; }

  int hosts;
  int local;
  int host;
  int place;
};

// Each rank of a host sends every other rank its input of that rank's slice. Folds are in order of
// local ranks.
Step sum_on_host(const Places& at) {
  Step step;
  const int mine = at.chunk(at.place, 0);
  Fold fold{out(mine, at.hosts), {}};
  for (int place = 0, slot = 0; place < at.local; ++place) {
    if (place == at.place) {
      fold.inputs.push_back(in(mine, at.hosts));
      continue;
    }
    const int peer = at.rank(at.host, place);
    step.sends.push_back(send(peer, in(at.chunk(place, 0), at.hosts)));
    step.recvs.push_back(recv(peer, scratch(slot, mine, at.hosts)));
    fold.inputs.push_back(scratch(slot, mine, at.hosts));
    slot += at.hosts;
  }
  step.folds.push_back(std::move(fold));
  return step;
}

// As sum_on_host(), but between hosts and chunk by chunk; folds in order of hosts.
Step sum_between_hosts(const Places& at) {
  Step step;
  const int mine = at.chunk(at.place, at.host);
  Fold fold{out(mine), {}};
  for (int host = 0, slot = 0; host < at.hosts; ++host) {
    if (host == at.host) {
      fold.inputs.push_back(out(mine));
      continue;
    }
    const int peer = at.rank(host, at.place);
    step.sends.push_back(send(peer, out(at.chunk(at.place, host))));
    step.recvs.push_back(recv(peer, scratch(slot, mine)));
    fold.inputs.push_back(scratch(slot++, mine));
  }
  step.folds.push_back(std::move(fold));
  return step;
}

Step spread_between_hosts(const Places& at) {
  Step step;
  for (int host = 0; host < at.hosts; ++host) {
    if (host == at.host) continue;
    const int peer = at.rank(host, at.place);
    step.sends.push_back(send(peer, out(at.chunk(at.place, at.host))));
    step.recvs.push_back(recv(peer, out(at.chunk(at.place, host))));
  }
  return step;
}

Step spread_on_host(const Places& at) {
  Step step;
  for (int place = 0; place < at.local; ++place) {
    if (place == at.place) continue;
    const int peer = at.rank(at.host, place);
    step.sends.push_back(send(peer, out(at.chunk(at.place, 0), at.hosts)));
    step.recvs.push_back(recv(peer, out(at.chunk(place, 0), at.hosts)));
  }
  return step;
}

}  // namespace

Schedule allreduce_two_level(const Shape& shape) {
  if (shape.hosts <= 1 || shape.hosts == shape.size) return allreduce_direct(shape);
  const Places at(shape);
  Schedule schedule = begin(shape.size, std::max((at.local - 1) * at.hosts, at.hosts - 1));
  schedule.steps = {sum_on_host(at), sum_between_hosts(at), spread_between_hosts(at),
                    spread_on_host(at)};
  return schedule;
}

}  // namespace hccl::schedule
