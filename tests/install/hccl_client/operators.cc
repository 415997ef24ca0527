#include "operators.h"

#include <algorithm>

namespace {

uint64_t share(const Setting& s) { return std::max<uint64_t>(1, s.count / s.ranks); }

// The length of a part, which depends on both ranks.
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

void plan_all_reduce(const Setting& s, TestCase* p) {
  p->send_count = p->recv_count = s.count;
  p->expected.push_back({0, s.count, Part::kReduced, 0});
}

void plan_reduce(const Setting& s, TestCase* p) {
  p->send_count = p->recv_count = s.count;
  if (s.rank == s.root) p->expected.push_back({0, s.count, Part::kReduced, 0});
}

void plan_broadcast(const Setting& s, TestCase* p) {
  p->recv_count = s.count;
  p->in_place = true;
  p->expected.push_back({0, s.count, s.root, 0});
}

void plan_reduce_scatter(const Setting& s, TestCase* p) {
  p->recv_count = share(s);
  p->send_count = share(s) * s.ranks;
  p->expected.push_back({0, share(s), Part::kReduced, s.rank * share(s)});
}

void plan_reduce_scatterv(const Setting& s, TestCase* p) {
  for (uint32_t to = 0; to < s.ranks; ++to) p->send_counts.push_back(uneven(s, 0, to));
  p->send_displacements = displacements(p->send_counts);
  p->send_count = total(p->send_counts);
  p->recv_count = p->send_counts[s.rank];
  p->expected.push_back({0, p->recv_count, Part::kReduced, p->send_displacements[s.rank]});
}

void plan_all_gather(const Setting& s, TestCase* p) {
  p->send_count = share(s);
  p->recv_count = share(s) * s.ranks;
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({from * share(s), share(s), from, 0});
  }
}

void plan_all_gatherv(const Setting& s, TestCase* p) {
  for (uint32_t from = 0; from < s.ranks; ++from) p->recv_counts.push_back(uneven(s, from, 0));
  p->recv_displacements = displacements(p->recv_counts);
  p->send_count = p->recv_counts[s.rank];
  p->recv_count = total(p->recv_counts);
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({p->recv_displacements[from], p->recv_counts[from], from, 0});
  }
}

void plan_scatter(const Setting& s, TestCase* p) {
  p->recv_count = share(s);
  p->send_count = s.rank == s.root ? share(s) * s.ranks : 0;
  p->expected.push_back({0, share(s), s.root, s.rank * share(s)});
}

void plan_alltoall(const Setting& s, TestCase* p) {
  p->send_count = p->recv_count = share(s) * s.ranks;
  for (uint32_t from = 0; from < s.ranks; ++from) {
    p->expected.push_back({from * share(s), share(s), from, s.rank * share(s)});
  }
}

void plan_alltoallv(const Setting& s, TestCase* p) {
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

// Sends the same data as alltoallv; the counts are the whole matrix.
void plan_alltoallvc(const Setting& s, TestCase* p) {
  plan_alltoallv(s, p);
  p->send_counts.clear();
  for (uint32_t from = 0; from < s.ranks; ++from) {
    for (uint32_t to = 0; to < s.ranks; ++to) p->send_counts.push_back(uneven(s, from, to));
  }
}

}  // namespace

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> operators = {
      {"all_reduce", true, plan_all_reduce,
       [](const Run& r) {
         return HcclAllReduce(r.send, r.recv, r.p.recv_count, r.s.type, r.s.reduction, r.comm,
                              r.stream);
       }},
      {"all_gather", false, plan_all_gather,
       [](const Run& r) {
         return HcclAllGather(r.send, r.recv, r.p.send_count, r.s.type, r.comm, r.stream);
       }},
      {"all_gatherv", false, plan_all_gatherv,
       [](const Run& r) {
         return HcclAllGatherV(r.send, r.p.send_count, r.recv, r.p.recv_counts.data(),
                               r.p.recv_displacements.data(), r.s.type, r.comm, r.stream);
       }},
      {"broadcast", false, plan_broadcast,
       [](const Run& r) {
         return HcclBroadcast(r.recv, r.p.recv_count, r.s.type, r.s.root, r.comm, r.stream);
       }},
      {"reduce", true, plan_reduce,
       [](const Run& r) {
         return HcclReduce(r.send, r.recv, r.p.send_count, r.s.type, r.s.reduction, r.s.root,
                           r.comm, r.stream);
       }},
      {"reduce_scatter", true, plan_reduce_scatter,
       [](const Run& r) {
         return HcclReduceScatter(r.send, r.recv, r.p.recv_count, r.s.type, r.s.reduction, r.comm,
                                  r.stream);
       }},
      {"reduce_scatterv", true, plan_reduce_scatterv,
       [](const Run& r) {
         return HcclReduceScatterV(r.send, r.p.send_counts.data(), r.p.send_displacements.data(),
                                   r.recv, r.p.recv_count, r.s.type, r.s.reduction, r.comm,
                                   r.stream);
       }},
      {"scatter", false, plan_scatter,
       [](const Run& r) {
         return HcclScatter(r.send, r.recv, r.p.recv_count, r.s.type, r.s.root, r.comm, r.stream);
       }},
      {"alltoall", false, plan_alltoall,
       [](const Run& r) {
         return HcclAlltoAll(r.send, r.p.send_count / r.s.ranks, r.s.type, r.recv,
                             r.p.recv_count / r.s.ranks, r.s.type, r.comm, r.stream);
       }},
      {"alltoallv", false, plan_alltoallv,
       [](const Run& r) {
         return HcclAlltoAllV(r.send, r.p.send_counts.data(), r.p.send_displacements.data(),
                              r.s.type, r.recv, r.p.recv_counts.data(),
                              r.p.recv_displacements.data(), r.s.type, r.comm, r.stream);
       }},
      {"alltoallvc", false, plan_alltoallvc,
       [](const Run& r) {
         return HcclAlltoAllVC(r.send, r.p.send_counts.data(), r.s.type, r.recv, r.s.type, r.comm,
                               r.stream);
       }},
  };
  return operators;
}

const Operator* find_operator(const std::string& name) {
  for (const Operator& op : all_operators()) {
    if (name == op.name) return &op;
  }
  return nullptr;
}
