#include "hccl/schedule/algorithm.h"

#include <array>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

std::string any_size(int) { return {}; }

std::string powers_of_two(int size) {
  if (is_power_of_two(size)) return {};
  return "halving and doubling need a power of two ranks, not " + std::to_string(size);
}

// The share of the vector that a rank sends or folds if it keeps one of `size` blocks.
double all_but_one(int size) { return static_cast<double>(size - 1) / size; }

Cost sum(Cost a, Cost b) {
  return {a.steps + b.steps, a.bytes + b.bytes, a.folded + b.folded, a.messages + b.messages};
}

// An algorithm with one message in each step.
Cost one_by_one(double steps, double bytes, double folded) { return {steps, bytes, folded, steps}; }
// An algorithm of one step with a message to each other rank.
Cost all_together(int size, double bytes, double folded) {
  return size == 1 ? Cost{} : Cost{1, bytes, folded, size - 1.0};
}

Cost ring_reduce(int size, int) {
  return one_by_one(size - 1.0, all_but_one(size), all_but_one(size));
}
Cost ring_spread(int size, int) { return one_by_one(size - 1.0, all_but_one(size), 0); }
Cost log_reduce(int size, int) {
  return one_by_one(ceil_log2(size), all_but_one(size), all_but_one(size));
}
Cost log_spread(int size, int) { return one_by_one(ceil_log2(size), all_but_one(size), 0); }
Cost one_reduce(int size, int) { return all_together(size, all_but_one(size), all_but_one(size)); }
Cost one_spread(int size, int) { return all_together(size, all_but_one(size), 0); }
Cost messages_only(int size, int) { return one_by_one(ceil_log2(size), 0, 0); }

Cost ring_twice(int size, int) { return sum(ring_reduce(size, 1), ring_spread(size, 1)); }
Cost log_twice(int size, int) { return sum(log_reduce(size, 1), log_spread(size, 1)); }
Cost one_twice(int size, int) { return sum(one_reduce(size, 1), one_spread(size, 1)); }
Cost one_spread_twice(int size, int) { return sum(one_spread(size, 1), one_spread(size, 1)); }

// Ranks beyond a power of two add two steps with the whole vector: one before, with a fold, and one
// after.
Cost halving_doubling(int size, int) {
  const int core = floor_power_of_two(size);
  const Cost inner = log_twice(core, 1);
  return core == size ? inner : sum(inner, one_by_one(2, 2, 1));
}

// Every step moves the whole vector. Ranks beyond a power of two cost the same as in
// halving_doubling().
Cost recursive_doubling(int size, int) {
  const int core = floor_power_of_two(size);
  const double steps = ceil_log2(core);
  const Cost inner = one_by_one(steps, steps, steps);
  return core == size ? inner : sum(inner, one_by_one(2, 2, 1));
}

// The cost of a working rank. An idle rank has only two messages.
Cost paired_doubling(int size, int) {
  if (size == 1) return {};
  const double steps = ceil_log2(size / 2);
  return sum(one_by_one(steps, steps, steps), one_by_one(2, 2, 1));
}

// A close upper bound: the first chunk goes up and down the tree, and each later chunk takes one
// more tick. At each tick an inner node handles two chunks on the way up and two on the way down; a
// chunk is 1 / (2 depth) of the vector.
Cost double_tree(int size, int depth) {
  if (size == 1) return {};
  const double height = tree_height(size), followers = depth - 1;
  const double steps = followers + 2 * height;
  // Between two ranks, one message goes in each direction.
  return {steps, 2 * (followers + height) / depth, (followers + height) / depth,
          size == 2 ? steps : 4 * (followers + height)};
}

Cost whole_vector_spread(int size, int) { return one_by_one(ceil_log2(size), ceil_log2(size), 0); }
Cost whole_vector_reduce(int size, int) {
  return one_by_one(ceil_log2(size), ceil_log2(size), ceil_log2(size));
}

Cost all_at_once(int size, int) { return all_together(size, size - 1.0, size - 1.0); }

Cost chain_spread(int size, int depth) {
  if (size == 1) return {};
  const double steps = size - 2 + depth;
  return one_by_one(steps, steps / depth, 0);
}
Cost chain_reduce(int size, int depth) {
  const Cost moves = chain_spread(size, depth);
  return one_by_one(moves.steps, moves.bytes, moves.bytes);
}

constexpr std::array kAlgorithms = {
    Algorithm{Op::kAllReduce, "direct", "fullmesh",
              "Every rank folds its chunk of all inputs in rank order and sends the sum to all.",
              allreduce_direct, any_size, one_twice},
    Algorithm{Op::kAllReduce, "one_shot", "",
              "Every rank sends its vector to every other and folds all of them in rank order.",
              allreduce_one_shot, any_size, all_at_once},
    Algorithm{Op::kAllReduce, "two_level", "",
              "Ranks of a host share the sum, then ranks with the same local rank share it.",
              allreduce_two_level, any_size, one_twice},
    Algorithm{Op::kAllReduce, "ring", "ring",
              "Chunks go round between neighbours, once to be summed and once to be spread.",
              allreduce_ring, any_size, ring_twice},
    Algorithm{Op::kAllReduce, "pairwise", "",
              "As direct, but with one partner after another: one message at a time each way.",
              allreduce_pairwise, any_size, ring_twice},
    Algorithm{Op::kAllReduce, "halving_doubling", "H-D_R",
              "Partners at halving distances sum halves, then spread them at doubling distances.",
              allreduce_halving_doubling, any_size, halving_doubling, true},
    Algorithm{Op::kAllReduce, "recursive_doubling", "",
              "Partners at doubling distances exchange their sums, and both add them.",
              allreduce_recursive_doubling, any_size, recursive_doubling, true},
    Algorithm{Op::kAllReduce, "paired_doubling", "",
              "One rank of each pair sums for both, and exchanges sums at doubling distances.",
              allreduce_paired_doubling, powers_of_two, paired_doubling, true},
    Algorithm{Op::kAllReduce, "bruck", "NB",
              "As halving-doubling, but on a circle, so it works alike for any number of ranks.",
              allreduce_bruck, any_size, log_twice},
    Algorithm{Op::kAllReduce, "double_tree", "",
              "Chunks are summed up one of two binary trees and sent down again, in a pipeline.",
              allreduce_double_tree, any_size, double_tree},

    Algorithm{Op::kBroadcast, "binomial", "",
              "Every rank with the vector sends it on, so their number doubles in each step.",
              broadcast_binomial, any_size, whole_vector_spread},
    Algorithm{Op::kBroadcast, "direct", "fullmesh",
              "The root gives every rank one chunk and the ranks exchange their chunks.",
              broadcast_direct, any_size, one_spread_twice},
    Algorithm{Op::kBroadcast, "chain", "pipeline",
              "Chunks follow each other down a line of ranks that starts at the root.",
              broadcast_chain, any_size, chain_spread},

    Algorithm{Op::kReduceScatter, "direct", "fullmesh",
              "Every rank gets all parts of its block and folds them in rank order.",
              reduce_scatter_direct, any_size, one_reduce},
    Algorithm{Op::kReduceScatter, "ring", "ring",
              "A block goes round between neighbours, collects all parts and ends at its owner.",
              reduce_scatter_ring, any_size, ring_reduce},
    Algorithm{Op::kReduceScatter, "pairwise", "",
              "As direct, but with one partner after another: one message at a time each way.",
              reduce_scatter_pairwise, any_size, ring_reduce},
    Algorithm{Op::kReduceScatter, "halving_doubling", "H-D_R",
              "Partners at halving distances sum the half that each of them keeps.",
              reduce_scatter_halving_doubling, powers_of_two, log_reduce},
    Algorithm{Op::kReduceScatter, "bruck", "NB",
              "Partial sums of half of the blocks move along a circle at falling distances.",
              reduce_scatter_bruck, any_size, log_reduce},

    Algorithm{Op::kAllGather, "direct", "fullmesh", "Every rank sends its block to every other.",
              allgather_direct, any_size, one_spread},
    Algorithm{Op::kAllGather, "ring", "ring", "All blocks go round between neighbours.",
              allgather_ring, any_size, ring_spread},
    Algorithm{Op::kAllGather, "halving_doubling", "H-D_R",
              "Partners at doubling distances exchange all blocks that they have.",
              allgather_halving_doubling, powers_of_two, log_spread},
    Algorithm{Op::kAllGather, "bruck", "NB",
              "Blocks move along a circle at rising distances, twice as many in each step.",
              allgather_bruck, any_size, log_spread},

    Algorithm{Op::kReduce, "direct", "fullmesh",
              "Every rank folds its chunk of all inputs in rank order and sends it to the root.",
              reduce_direct, any_size, one_twice},
    Algorithm{Op::kReduce, "binomial", "",
              "Ranks pass their sums to partners nearer to the root, half of them in each step.",
              reduce_binomial, any_size, whole_vector_reduce},
    Algorithm{Op::kReduce, "chain", "pipeline",
              "Chunks follow each other along a line of ranks to the root, growing on the way.",
              reduce_chain, any_size, chain_reduce},

    Algorithm{Op::kScatter, "direct", "fullmesh", "The root sends every rank its block.",
              scatter_direct, any_size, one_spread},
    Algorithm{Op::kScatter, "binomial", "",
              "A rank with several blocks sends the farther half of them away in each step.",
              scatter_binomial, any_size, log_spread},

    Algorithm{Op::kAllToAll, "direct", "fullmesh", "All blocks go to their ranks at once.",
              alltoall_direct, any_size, one_spread},
    Algorithm{Op::kAllToAll, "pairwise", "pairwise",
              "In step k rank r sends to rank r + k and receives from rank r - k.",
              alltoall_pairwise, any_size, ring_spread},

    Algorithm{Op::kBarrier, "dissemination", "",
              "Messages at doubling distances say that all ranks known to the sender have come.",
              barrier_dissemination, any_size, messages_only},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find(Op op, std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.op == op && (algorithm.name == name || algorithm.hccl == name)) return &algorithm;
  }
  return nullptr;
}

}  // namespace hccl::schedule
