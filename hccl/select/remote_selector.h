// Which remote algorithm runs, with which depth and lanes. Only what all ranks know decides, so
// all ranks decide alike without a word.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hccl/base/call.h"
#include "hccl/base/types.h"
#include "hccl/schedule/algorithm.h"
#include "hccl/select/message_costs.h"

namespace hccl::select {

/// `bytes` is the size of the vector, `hosts` as in schedule::Shape. `wanted` is the algorithm that
/// HCCL_ALGO asks for ("" = choose); one that does not support the operation or size is replaced,
/// and the reason says so. Fixed rules decide if `costs`, the same on all ranks, are null;
/// otherwise the least predicted time does, unless the rules' choice is as good. shared_cores: one
/// host has fewer cores than ranks. round_once: a sum of 16-bit floats, of ranks on a host each,
/// for which an algorithm that folds all inputs at once is taken where it moves as much in as many
/// steps, or nearly.
schedule::Choice choose_remote(Op op, int size, std::size_t bytes, std::string_view wanted,
                               int hosts = 1, const MessageCosts* costs = nullptr,
                               bool shared_cores = false, bool round_once = false);

/// Whether a sum of this type loses digits each time that it is rounded between two folds.
constexpr bool rounds(const Call& call) {
  return reduces(call.op) && (call.type == DataType::kFp16 || call.type == DataType::kBfp16) &&
         (call.reduce == ReduceOp::kSum || call.reduce == ReduceOp::kAvg);
}

/// What the choice takes by these costs.
double predict_ns(const schedule::Choice& choice, int size, std::size_t bytes,
                  const MessageCosts& costs);

/// "12.3 us".
std::string microseconds(double ns);

}  // namespace hccl::select
