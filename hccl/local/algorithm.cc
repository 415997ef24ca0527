#include "hccl/local/algorithm.h"

#include <array>

#include "hccl/local/entries.h"

namespace hccl::local {
namespace {

constexpr Operations kWhole = {Op::kAllReduce, Op::kBroadcast, Op::kReduceScatter, Op::kAllGather,
                               Op::kReduce,    Op::kScatter,   Op::kAllToAll,      Op::kBarrier};
constexpr Operations kAll = {
    Op::kAllReduce, Op::kBroadcast, Op::kReduceScatter,  Op::kAllGather,  Op::kReduce,
    Op::kScatter,   Op::kAllToAll,  Op::kReduceScatterV, Op::kAllGatherV, Op::kAllToAllV};
constexpr Operations kFolds = {Op::kAllReduce, Op::kReduce, Op::kReduceScatter,
                               Op::kReduceScatterV};
constexpr Operations kMoves = {Op::kAllGather, Op::kAllToAll, Op::kAllGatherV, Op::kAllToAllV};
constexpr Operations kNotAllReduce = {Op::kBroadcast,      Op::kReduceScatter, Op::kAllGather,
                                      Op::kReduce,         Op::kScatter,       Op::kAllToAll,
                                      Op::kReduceScatterV, Op::kAllGatherV,    Op::kAllToAllV};

constexpr Operations kAllReduce = {Op::kAllReduce};
constexpr Operations kBroadcast = {Op::kBroadcast};
constexpr Operations kReduce = {Op::kReduce};
constexpr Operations kScatter = {Op::kScatter};
constexpr Operations kReductions = {Op::kAllReduce, Op::kReduce};

constexpr std::array kTable = {
    Algorithm{"inline", "the input travels in the line that announces the operation", kWhole,
              refuse_inline, run_inline, announce_inline},
    Algorithm{"slots", "inputs are staged whole with the announcement; each rank takes from all",
              kWhole, refuse_slots, run_slots, announce_slots, prefetch_slots},
    Algorithm{"staged", "inputs are staged in chunks; each rank takes from all", kAll, refuse_none,
              run_staged},
    Algorithm{"staged_slices", "inputs are staged in chunks; each rank folds a slice", kAllReduce,
              refuse_staged_slices, run_staged_slices},
    Algorithm{"turns", "ranks that share cores fold in turn into one buffer", kReductions,
              refuse_turns, run_turns},
    Algorithm{"cma", "the kernel copies inputs; each rank folds a slice", kFolds, refuse_cma,
              run_cma_folds},
    Algorithm{"cma", "the kernel copies each block into the output of its rank", kMoves, refuse_cma,
              run_cma_moves},
    Algorithm{"cma", "each rank fetches its block through the kernel", kScatter, refuse_cma,
              run_cma_fetch},
    Algorithm{"cma", "the root stores a slice through the kernel, its peers fetch the rest",
              kBroadcast, refuse_cma, run_cma_broadcast},
    Algorithm{"pull", "each rank reads directly from the inputs of all ranks", kNotAllReduce,
              refuse_pull, run_pull},
    Algorithm{"pull", "each rank folds its slice, and copies the slices of its peers", kAllReduce,
              refuse_push, run_pull_allreduce},
    Algorithm{"push", "each rank stores its blocks straight into the outputs", kMoves, refuse_push,
              run_push_blocks},
    Algorithm{"push", "the root stores a slice into all outputs, its peers copy the rest",
              kBroadcast, refuse_push, run_push_broadcast},
    Algorithm{"push", "each rank folds its slice into the root's output", kReduce, refuse_push,
              run_push_reduce},
    Algorithm{"push", "each rank folds its slice and stores it into all outputs", kAllReduce,
              refuse_push, run_push_allreduce},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kTable; }

const Algorithm* find(Op op, std::string_view name) {
  for (const Algorithm& each : algorithms()) {
    if (each.name == name && each.operations.contains(op)) return &each;
  }
  return nullptr;
}

}  // namespace hccl::local
