// The functions of the algorithms, which the table in algorithm.cc names. Each algorithm has a
// file.
#pragma once

#include <string>

#include "hccl/local/algorithm.h"

namespace hccl::local {

// inline.cc
std::string refuse_inline(const Case& c, const Topology& topology);
void announce_inline(Region& region, Operation& op);
Status run_inline(Region& region, const Operation& op);

// slots.cc
std::string refuse_slots(const Case& c, const Topology& topology);
void announce_slots(Region& region, Operation& op);
void prefetch_slots(const Region& region, const Operation& op, int giver);
Status run_slots(Region& region, const Operation& op);

// staged.cc
std::string refuse_none(const Case& c, const Topology& topology);
Status run_staged(Region& region, const Operation& op);

// staged_slices.cc
std::string refuse_staged_slices(const Case& c, const Topology& topology);
Status run_staged_slices(Region& region, const Operation& op);

// turns.cc
std::string refuse_turns(const Case& c, const Topology& topology);
Status run_turns(Region& region, const Operation& op);

// cma.cc
std::string refuse_cma(const Case& c, const Topology& topology);
Status run_cma_folds(Region& region, const Operation& op);
Status run_cma_moves(Region& region, const Operation& op);
Status run_cma_fetch(Region& region, const Operation& op);
Status run_cma_broadcast(Region& region, const Operation& op);

// pull.cc
std::string refuse_pull(const Case& c, const Topology& topology);
Status run_pull(Region& region, const Operation& op);
Status run_pull_allreduce(Region& region, const Operation& op);

// push.cc
/// Also for the allreduce of pull: in both, all buffers must be reachable.
std::string refuse_push(const Case& c, const Topology& topology);
Status run_push_blocks(Region& region, const Operation& op);
Status run_push_broadcast(Region& region, const Operation& op);
Status run_push_reduce(Region& region, const Operation& op);
Status run_push_allreduce(Region& region, const Operation& op);

}  // namespace hccl::local
