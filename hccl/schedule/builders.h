// The builders of all algorithms, named operation_pattern. The file of each pattern describes it.
#pragma once

#include "hccl/schedule/schedule.h"

namespace hccl::schedule {

// ring.cc: neighbours only, size - 1 steps in each phase.
Schedule allreduce_ring(const Shape& shape);
Schedule reduce_scatter_ring(const Shape& shape);
Schedule allgather_ring(const Shape& shape);

// halving_doubling.cc: partners at distance 1, 2, 4, …; allreduce for any size, reduce-scatter and
// allgather for 2^k ranks.
Schedule allreduce_halving_doubling(const Shape& shape);
Schedule reduce_scatter_halving_doubling(const Shape& shape);
Schedule allgather_halving_doubling(const Shape& shape);

// recursive_doubling.cc: partners at distance 1, 2, 4, … exchange their whole vectors; any number
// of ranks.
Schedule allreduce_recursive_doubling(const Shape& shape);
// As recursive doubling, but only one rank of each pair works; 2^k ranks.
Schedule allreduce_paired_doubling(const Shape& shape);

// bruck.cc: ceil(log2 size) steps in each phase for any number of ranks.
Schedule allreduce_bruck(const Shape& shape);
Schedule reduce_scatter_bruck(const Shape& shape);
Schedule allgather_bruck(const Shape& shape);

// double_tree.cc: each of two trees carries half of the chunks and has `depth` chunks in flight.
Schedule allreduce_double_tree(const Shape& shape);

// direct.cc: every rank exchanges with every other rank; one step in each phase; folds in rank
// order.
Schedule allreduce_direct(const Shape& shape);
Schedule allreduce_one_shot(const Shape& shape);
Schedule reduce_scatter_direct(const Shape& shape);
Schedule allgather_direct(const Shape& shape);
Schedule reduce_direct(const Shape& shape);
Schedule broadcast_direct(const Shape& shape);
Schedule scatter_direct(const Shape& shape);
Schedule alltoall_direct(const Shape& shape);

// two_level.cc: first among the ranks of a host, then between hosts.
Schedule allreduce_two_level(const Shape& shape);

// binomial.cc: the number of ranks with data doubles in every step.
Schedule broadcast_binomial(const Shape& shape);
Schedule reduce_binomial(const Shape& shape);
Schedule scatter_binomial(const Shape& shape);

// chain.cc: `depth` chunks follow each other down a line of ranks.
Schedule broadcast_chain(const Shape& shape);
Schedule reduce_chain(const Shape& shape);

// pairwise.cc: one partner in each step; one fold when all inputs have arrived.
Schedule allreduce_pairwise(const Shape& shape);
Schedule reduce_scatter_pairwise(const Shape& shape);
Schedule alltoall_pairwise(const Shape& shape);

// dissemination.cc: distances 1, 2, 4, …
Schedule barrier_dissemination(const Shape& shape);

}  // namespace hccl::schedule
