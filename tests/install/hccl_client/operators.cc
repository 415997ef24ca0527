#include "operators.h"

#include <algorithm>

namespace {

uint64_t share(const Setting& s) { return std::max<uint64_t>(1, s.count / s.ranks); }

// Parts of unequal length that depend on two ranks.
uint64_t uneven(const Setting& s, uint32_t from, uint32_t to) {
  return share(s) + (from + 2 * to) % 3;
}

std::vector<uint64_t> displacements(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> starts;
  uint64_t sum = 0;
  for (uint64_t count : counts) {
    starts.push_back(sum);
    sum += count;
  }
  return starts;
}

uint64_t total(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (uint64_t count : counts) sum += count;
  return sum;
}

// ---- plans ----

void plan_all_reduce(const Setting& s, Plan* p) {
  p->send_count = p->recv_count = s.count;
  p->expected.push_back({0, s.count, Part::kReduced, 0});
}

void plan_reduce(const Setting& s, Plan* p) {
  p->send_count = p->recv_count = s.count;
  if (s.rank == s.root) p->expected.push_back({0, s.count, Part::kReduced, 0});
}

void plan_broadcast(const Setting& s, Plan* p) {
  p->recv_count = s.count;
  p->in_place = true;
  p->expected.push_back({0, s.count, s.root, 0});
}

void plan_reduce_scatter(const Setting& s, Plan* p) {
  p->recv_count = share(s);
  p->send_count = share(s) * s.ranks;
  p->expected.push_back({0, share(s), Part::kReduced, s.rank * share(s)});
}

void plan_reduce_scatterv(const Setting& s, Plan* p) {
  for (uint32_t to = 0; to < s.ranks; ++to) p->send_counts.push_back(uneven(s, 0, to));
  p->send_displacements = displacements(p->send_counts);
  p->send_count = total(p->send_counts);
  p->recv_count = p->send_counts[s.rank];
  p->expected.push_back({0, p->recv_count, Part::kReduced, p->send_displacements[s.rank]});
}

void plan_all_gather(const Setting& s, Plan* p) {
  p->send_count = share(s);
  p->recv_count = share(s) * s.ranks;
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({from * share(s), share(s), from, 0});
  }
}

void plan_all_gatherv(const Setting& s, Plan* p) {
  for (uint32_t from = 0; from < s.ranks; ++from) p->recv_counts.push_back(uneven(s, from, 0));
  p->recv_displacements = displacements(p->recv_counts);
  p->send_count = p->recv_counts[s.rank];
  p->recv_count = total(p->recv_counts);
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({p->recv_displacements[from], p->recv_counts[from], from, 0});
  }
}

void plan_scatter(const Setting& s, Plan* p) {
  p->recv_count = share(s);
  p->send_count = s.rank == s.root ? share(s) * s.ranks : 0;
  p->expected.push_back({0, share(s), s.root, s.rank * share(s)});
}

void plan_alltoall(const Setting& s, Plan* p) {
  p->send_count = p->recv_count = share(s) * s.ranks;
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({from * share(s), share(s), from, s.rank * share(s)});
  }
}

void plan_alltoallv(const Setting& s, Plan* p) {
  for (uint32_t peer = 0; peer < s.ranks; ++peer) {
    p->send_counts.push_back(uneven(s, s.rank, peer));
    p->recv_counts.push_back(uneven(s, peer, s.rank));
  }
  p->send_displacements = displacements(p->send_counts);
  p->recv_displacements = displacements(p->recv_counts);
  p->send_count = total(p->send_counts);
  p->recv_count = total(p->recv_counts);
  for (uint32_t from = 0; from < s.ranks; ++from) {
    uint64_t offset = 0;
    for (uint32_t to = 0; to < s.rank; ++to) offset += uneven(s, from, to);
    p->expected.push_back({p->recv_displacements[from], p->recv_counts[from], from, offset});
  }
}

// The same data as alltoallv; the counts are the whole matrix.
void plan_alltoallvc(const Setting& s, Plan* p) {
  plan_alltoallv(s, p);
  p->send_counts.clear();
  for (uint32_t from = 0; from < s.ranks; ++from) {
    for (uint32_t to = 0; to < s.ranks; ++to) p->send_counts.push_back(uneven(s, from, to));
  }
}

// ---- calls ----

HcclResult call_all_reduce(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                           aclrtStream stream) {
  return HcclAllReduce(send, recv, p.recv_count, s.type, s.reduction, comm, stream);
}

HcclResult call_reduce(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                       aclrtStream stream) {
  return HcclReduce(send, recv, p.send_count, s.type, s.reduction, s.root, comm, stream);
}

HcclResult call_broadcast(const Setting& s, const Plan& p, void*, void* recv, HcclComm comm,
                          aclrtStream stream) {
  return HcclBroadcast(recv, p.recv_count, s.type, s.root, comm, stream);
}

HcclResult call_reduce_scatter(const Setting& s, const Plan& p, void* send, void* recv,
                               HcclComm comm, aclrtStream stream) {
  return HcclReduceScatter(send, recv, p.recv_count, s.type, s.reduction, comm, stream);
}

HcclResult call_reduce_scatterv(const Setting& s, const Plan& p, void* send, void* recv,
                                HcclComm comm, aclrtStream stream) {
  return HcclReduceScatterV(send, p.send_counts.data(), p.send_displacements.data(), recv,
                            p.recv_count, s.type, s.reduction, comm, stream);
}

HcclResult call_all_gather(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                           aclrtStream stream) {
  return HcclAllGather(send, recv, p.send_count, s.type, comm, stream);
}

HcclResult call_all_gatherv(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                            aclrtStream stream) {
  return HcclAllGatherV(send, p.send_count, recv, p.recv_counts.data(), p.recv_displacements.data(),
                        s.type, comm, stream);
}

HcclResult call_scatter(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                        aclrtStream stream) {
  return HcclScatter(send, recv, p.recv_count, s.type, s.root, comm, stream);
}

HcclResult call_alltoall(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                         aclrtStream stream) {
  return HcclAlltoAll(send, p.send_count / s.ranks, s.type, recv, p.recv_count / s.ranks, s.type,
                      comm, stream);
}

HcclResult call_alltoallv(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                          aclrtStream stream) {
  return HcclAlltoAllV(send, p.send_counts.data(), p.send_displacements.data(), s.type, recv,
                       p.recv_counts.data(), p.recv_displacements.data(), s.type, comm, stream);
}

HcclResult call_alltoallvc(const Setting& s, const Plan& p, void* send, void* recv, HcclComm comm,
                           aclrtStream stream) {
  return HcclAlltoAllVC(send, p.send_counts.data(), s.type, recv, s.type, comm, stream);
}

}  // namespace

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> operators = {
      {"all_reduce", true, plan_all_reduce, call_all_reduce},
      {"all_gather", false, plan_all_gather, call_all_gather},
      {"all_gatherv", false, plan_all_gatherv, call_all_gatherv},
      {"broadcast", false, plan_broadcast, call_broadcast},
      {"reduce", true, plan_reduce, call_reduce},
      {"reduce_scatter", true, plan_reduce_scatter, call_reduce_scatter},
      {"reduce_scatterv", true, plan_reduce_scatterv, call_reduce_scatterv},
      {"scatter", false, plan_scatter, call_scatter},
      {"alltoall", false, plan_alltoall, call_alltoall},
      {"alltoallv", false, plan_alltoallv, call_alltoallv},
      {"alltoallvc", false, plan_alltoallvc, call_alltoallvc},
  };
  return operators;
}

const Operator* find_operator(const std::string& name) {
  for (const Operator& op : all_operators()) {
    if (name == op.name) return &op;
  }
  return nullptr;
}
