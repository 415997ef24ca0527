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

/// Without `costs`, fixed rules choose. With `costs`, which must be the same on all ranks, the
/// algorithm with the least predicted time is chosen, unless the rules' choice is about as fast.
/// `bytes`: size of the vector.
/// `wanted`: the algorithm that HCCL_ALGO names ("" = none). If that algorithm does not support the
///   operation or size, another algorithm replaces it, and the reason says so.
/// `hosts`: as in schedule::Shape.
/// `shared_cores`: some host has fewer cores than ranks.
/// `round_once`: for a sum of 16-bit floats with one rank on each host, choose an algorithm that
///   rounds once, regardless of the costs. For more than 32 ranks with chunks below 64 KiB this has
///   no effect, because every such algorithm is slow there.
schedule::Choice choose_remote(Op op, int size, std::size_t bytes, std::string_view wanted,
                               int hosts = 1, const MessageCosts* costs = nullptr,
                               bool shared_cores = false, bool round_once = false);

/// Whether the call is a sum or average of 16-bit floats, which loses digits at each rounding.
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
