// Chooses the remote algorithm with its depth and lanes. The choice depends only on facts that all
// ranks know, so all ranks make the same choice without communication.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hccl/base/call.h"
#include "hccl/base/types.h"
#include "hccl/schedule/algorithm.h"
#include "hccl/select/message_costs.h"

namespace hccl::select {

/// `bytes`: size of the vector. `hosts`: as in schedule::Shape. `wanted`: the algorithm that
/// HCCL_ALGO names ("" = none); if that algorithm does not support the operation or size, another
/// algorithm replaces it, and the reason says so. `costs` must be the same on all ranks. If it is
/// null, fixed rules choose. Otherwise the algorithm with the least predicted time is chosen,
/// unless the rules' choice is about as fast. `shared_cores`: some host has fewer cores than ranks.
/// `round_once`: for a sum of 16-bit floats with one rank on each host, choose an algorithm that
/// rounds once, regardless of the costs. It has no effect for more than 32 ranks with chunks below
/// 64 KiB, where every such algorithm is slow.
schedule::Choice choose_remote(Op op, int size, std::size_t bytes, std::string_view wanted,
                               int hosts = 1, const MessageCosts* costs = nullptr,
                               bool shared_cores = false, bool round_once = false);

/// Whether a sum of this type loses digits at each rounding between two folds.
constexpr bool rounds(const Call& call) {
  return reduces(call.op) && (call.type == DataType::kFp16 || call.type == DataType::kBfp16) &&
         (call.reduce == ReduceOp::kSum || call.reduce == ReduceOp::kAvg);
}

/// The predicted time of the choice with these costs.
double predict_ns(const schedule::Choice& choice, int size, std::size_t bytes,
                  const MessageCosts& costs);

/// "12.3 us".
std::string microseconds(double ns);

}  // namespace hccl::select
